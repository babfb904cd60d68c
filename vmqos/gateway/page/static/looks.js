// SPDX-License-Identifier: Apache-2.0
// The agent's newest looks at the counters and the hardware events: asked for as columns, of which only the numbers are told
// again and again. Pure but for `Looks`.

import { askAll } from "./agent.js";

const QUESTION = "v1/telemetry/columns";

/** What an agent before this one is asked instead. */
const WHOLE = { executed: "v1/telemetry/hardware-events", telemetry: "v1/telemetry" };

/** Seconds until an agent that tells no columns is asked for them again: it may be another one by then. */
const PATIENCE = 60;

/** The counters as `/v1/telemetry` tells them, as far as the page shows them. */
export function telemetryOf({ columns, apart, ...rest }, same) {
  const held = Object.entries(columns.held);
  const vms = Object.entries(same).map(([uuid, staying], at) => {
    const caches = Object.fromEntries(held.map(([cache, column]) => [cache, { llc_occupancy: column[at] }]));
    const totals = { llc_occupancy: held.reduce((sum, [, column]) => sum + column[at], 0) };
    const rates = { total: columns.total[at], local: columns.local[at], remote: columns.remote[at] };
    return [uuid, { ...staying, caches, totals, rates, rates_missing: {} }];
  });
  return { ...rest, vms: { ...Object.fromEntries(vms), ...apart } };
}

/** The hardware events as `/v1/telemetry/hardware-events` tells them, as far as the page shows them. */
export function executedOf({ columns: { share, ...events }, apart, ...rest }, same) {
  const names = Object.keys(events);
  const vms = same.map((uuid, at) => {
    const rates = Object.fromEntries(names.map((name) => [name, events[name][at]]));
    return [uuid, { rates, share: share[at], reason: "" }];
  });
  return { ...rest, vms: { ...Object.fromEntries(vms), ...apart } };
}

export class Looks {
  #basis = "";
  #same = { counters: {}, hardware_events: [] };
  #due = 0;

  /** The answers `telemetry` and `executed`, each a value or the agent's words why there is none. */
  async ask(now) {
    if (now >= this.#due) {
      const { looks } = await askAll({ looks: `${QUESTION}?basis=${encodeURIComponent(this.#basis)}` });
      if (looks.value) return this.#heard(looks.value);
      this.#due = now + PATIENCE;
    }
    return askAll(WHOLE);
  }

  #heard({ basis, same, counters, error, hardware_events: executed }) {
    this.#basis = basis;
    this.#same = same ?? this.#same;
    return {
      telemetry: counters ? { value: telemetryOf(counters, this.#same.counters) } : { error },
      executed: executed ? { value: executedOf(executed, this.#same.hardware_events) } : { error: "it does not count them" },
    };
  }
}
