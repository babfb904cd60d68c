// SPDX-License-Identifier: Apache-2.0
// The last day of the VMs whose charts show it, minute by minute. Pure but for `Day.ask`.

import { Refused, Silent, ask } from "./agent.js";
import { SERIES } from "./history.js";

export const DAY = 86400;
export const MINUTE = 60;

/** The least time that a chart of minutes spans: an agent that has just started remembers little. */
const LEAST = 3600;

const STATISTICS = ["least", "mean", "greatest"];
const NOTHING = { times: [], span: LEAST, problem: "asking the agent" };

/** The question for a VM's minutes since a time; all of the day where none is known yet. */
export function questionOf(uuid, now, until) {
  // One minute more, for the agent's clock may be ahead of what it told last.
  const seconds = until === null ? DAY : Math.min(DAY, Math.ceil(now - until) + MINUTE);
  return `v1/telemetry/history?resolution=${MINUTE}&seconds=${seconds}&vm=${encodeURIComponent(uuid)}`;
}

/** Add an answer to the rows that are known of a VM, by the number of the minute, and forget what is older than a day. */
export function added(rows, answer, uuid, now) {
  const found = new Map(rows);
  const series = answer.vms[uuid] ?? {};
  answer.times.forEach((time, index) => {
    const row = SERIES.map((name) => STATISTICS.map((statistic) => series[name]?.[statistic]?.[index] ?? null));
    // A clock that was set back tells a minute twice: the later one is kept.
    found.set(Math.floor(time / MINUTE), row.map((one) => (one.includes(null) ? [null, null, null] : one)));
  });
  for (const number of found.keys()) {
    if (number * MINUTE < now - DAY || number * MINUTE > now) found.delete(number);
  }
  return found;
}

/**
 * The rows as series for a chart, from the first minute that has a number. A minute that the agent did not tell is there
 * without a number, so that the line has a gap.
 */
export function seriesOf(rows, now) {
  const known = [...rows].filter(([, row]) => row.some(([least]) => least !== null)).map(([number]) => number);
  const first = Math.min(...known);
  const length = known.length ? Math.max(...rows.keys()) - first + 1 : 0;
  const numbers = Array.from({ length }, (_, index) => first + index);
  const found = { times: numbers.map((number) => number * MINUTE) };
  SERIES.forEach((name, at) => {
    found[name] = Object.fromEntries(
      STATISTICS.map((statistic, which) => [statistic, numbers.map((number) => rows.get(number)?.[at][which] ?? null)]),
    );
  });
  const age = length ? LEAST * Math.ceil((now - first * MINUTE) / LEAST) : 0;
  return { ...found, span: Math.min(DAY, Math.max(LEAST, age)), problem: length ? "" : "no minute is known yet" };
}

export class Day {
  #vms = new Map();
  #asking = false;

  /** What is known of a VM: `times` of minutes, by series the least, mean and greatest of each; else the `problem`. */
  of(uuid) {
    return this.#vms.get(uuid)?.series ?? NOTHING;
  }

  /** Forget all VMs but these. */
  keep(uuids) {
    for (const uuid of this.#vms.keys()) if (!uuids.has(uuid)) this.#vms.delete(uuid);
  }

  /**
   * Ask about each VM of which a minute has ended since it was last asked about.
   *
   * @param wanted returns the UUIDs of the VMs whose day is shown.
   * @param now returns when the agent last read the counters, which it tells itself: its clock may be another one.
   * @param heard called after each answer.
   */
  async ask(wanted, now, heard) {
    if (this.#asking) return;
    this.#asking = true;
    try {
      for (;;) {
        const uuid = wanted().find((one) => this.#isDue(one, now()));
        if (uuid === undefined) break;
        await this.#askAbout(uuid, now());
        heard();
      }
    } catch (error) {
      // The page's loop hears of the silence, too, and tells it.
      if (!(error instanceof Silent)) throw error;
    } finally {
      this.#asking = false;
    }
  }

  #isDue(uuid, now) {
    return now > 0 && Math.floor(now / MINUTE) !== this.#vms.get(uuid)?.asked;
  }

  async #askAbout(uuid, now) {
    const { rows = new Map(), until = null } = this.#vms.get(uuid) ?? {};
    const asked = Math.floor(now / MINUTE);
    try {
      const answer = await ask(questionOf(uuid, now, until));
      if (answer.resolution !== MINUTE) throw new Refused("this agent remembers ten minutes only");
      const more = added(rows, answer, uuid, now);
      this.#vms.set(uuid, { rows: more, until: answer.times.at(-1) ?? until, asked, series: seriesOf(more, now) });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#vms.set(uuid, { rows, until, asked, series: { ...NOTHING, problem: error.message } });
    }
  }
}
