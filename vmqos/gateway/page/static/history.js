// SPDX-License-Identifier: Apache-2.0
// The last ten minutes of every VM's counters. Pure but for `History.complete`.

import { Silent, askAll } from "./agent.js";
import { EXECUTED, SHARE } from "./executed.js";
import { PACKAGES, packagesOf } from "./packages.js";
import { usual } from "./scale.js";

export const WINDOW = 600;

/** The least time that a line spans: an agent that has just started remembers little. */
const LEAST = 60;

export const SERIES = ["llc_occupancy", "total", "local", "remote", ...EXECUTED, SHARE, ...PACKAGES];

/** What the rows of the table show of each VM; the others are asked for where a VM is unfolded. */
const OF_ROWS = ["llc_occupancy", "total"];

const QUESTION = `v1/telemetry/history?seconds=${WINDOW}`;

/** Samples in the order of their times; a series of a VM has one value, or null, for each time. */
export class History {
  #isAsking = false;

  constructor() {
    this.interval = 1;
    this.times = [];
    this.vms = new Map();
    this.whole = new Set();
  }

  /** The question for what `load` takes. All series of 200 VMs would be 20 MB. */
  get question() {
    return [QUESTION, ...OF_ROWS.map((name) => `series=${name}`)].join("&");
  }

  /** The time of the last sample; 0 without one. */
  get latest() {
    return this.times.at(-1) ?? 0;
  }

  /** How many seconds lines span: all that is remembered, up to the next ten seconds. */
  get span() {
    const remembered = 10 * Math.ceil((this.latest - (this.times[0] ?? 0)) / 10);
    return Math.min(WINDOW, Math.max(LEAST, remembered));
  }

  /** Begin anew with what the agent remembers. */
  load(answer) {
    this.interval = answer.interval;
    this.times = [...answer.times];
    this.vms = new Map(
      Object.entries(answer.vms).map(([uuid, series]) => [
        uuid,
        Object.fromEntries(SERIES.map((name) => [name, [...(series[name] ?? this.times.map(() => null))]])),
      ]),
    );
    this.whole = new Set();
  }

  /** Whether only some series of a VM are known from before the page was opened. */
  isPart(uuid) {
    return this.vms.has(uuid) && !this.whole.has(uuid);
  }

  /** Whether the other series of a VM are being asked for. */
  isComing(uuid) {
    return this.#isAsking && this.isPart(uuid);
  }

  /** Fill in all series of one VM. */
  fill(uuid, answer) {
    this.whole.add(uuid);
    const known = this.vms.get(uuid);
    const at = new Map(answer.times.map((time, index) => [time, index]));
    for (const name of known && answer.vms[uuid] ? SERIES : []) {
      known[name] = this.times.map((time, index) => known[name][index] ?? answer.vms[uuid][name]?.[at.get(time)] ?? null);
    }
  }

  /**
   * Ask for all series of the VMs that `wanted` returns the UUIDs of, where only some are known.
   *
   * @param redraw called when something of that has changed.
   */
  async complete(wanted, redraw) {
    if (this.#isAsking || !wanted().some((one) => this.isPart(one))) return;
    this.#isAsking = true;
    try {
      for (;;) {
        const uuid = wanted().find((one) => this.isPart(one));
        if (uuid === undefined) break;
        redraw();
        const { past } = await askAll({ past: `${QUESTION}&vm=${encodeURIComponent(uuid)}` });
        this.fill(uuid, past.value ?? { times: [], vms: {} });
      }
    } catch (error) {
      // The page's loop hears of the silence, too, and tells it.
      if (!(error instanceof Silent)) throw error;
    } finally {
      this.#isAsking = false;
      redraw();
    }
  }

  /** Add a sample, if it is a new one, with what the VMs' tasks execute, by their UUIDs (executed.js). */
  append(telemetry, executed = new Map()) {
    this.interval = telemetry.interval;
    if (telemetry.taken_at <= this.latest) return;
    for (const uuid of this.vms.keys()) {
      if (!(uuid in telemetry.vms) && !executed.has(uuid)) this.vms.delete(uuid);
    }
    // A VM may be in no group that is monitored, and yet be counted.
    for (const uuid of new Set([...Object.keys(telemetry.vms), ...executed.keys()])) {
      const vm = telemetry.vms[uuid];
      if (!this.vms.has(uuid)) {
        this.vms.set(uuid, Object.fromEntries(SERIES.map((name) => [name, this.times.map(() => null)])));
      }
      const series = this.vms.get(uuid);
      series.llc_occupancy.push(vm?.totals.llc_occupancy ?? null);
      for (const name of ["total", "local", "remote"]) series[name].push(vm?.rates?.[name] ?? null);
      for (const name of [...EXECUTED, SHARE]) series[name].push(executed.get(uuid)?.[name] ?? null);
      const counted = packagesOf(vm);
      for (const name of PACKAGES) series[name].push(counted?.[name] ?? null);
    }
    this.times.push(telemetry.taken_at);
    this.#trim();
  }

  #trim() {
    const old = this.times.findIndex((time) => time >= this.latest - WINDOW);
    if (old <= 0) return;
    this.times.splice(0, old);
    for (const series of this.vms.values()) {
      for (const name of SERIES) series[name].splice(0, old);
    }
  }

  /** The values of one VM's series; empty for a VM that was never counted. */
  values(uuid, name) {
    return this.vms.get(uuid)?.[name] ?? [];
  }

  /** The mean of the values of a series in the last seconds; null without any. */
  mean(uuid, name, seconds) {
    const since = this.times.findIndex((time) => time > this.latest - seconds);
    const found = this.values(uuid, name).slice(Math.max(0, since)).filter((value) => value !== null);
    return found.length ? mean(found) : null;
  }

  /** The share of the samples of the last seconds that have a value of a series, 0 to 1. */
  known(uuid, name, seconds) {
    const since = Math.max(0, this.times.findIndex((time) => time > this.latest - seconds));
    const found = this.values(uuid, name).slice(since);
    return found.filter((value) => value !== null).length / (found.length || 1);
  }

  /** The greatest of the VMs' usual values of a series: one VM's burst does not make all VMs' lines flat. */
  greatest(name) {
    return Math.max(0, ...[...this.vms.values()].map((series) => usual(series[name])));
  }
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * A series as at most `most` pairs of a time and a value in `span` seconds, each made `of` the samples in one slot of time, their
 * mean unless another way is given. The value is null where no sample has one, and once in a pause in the samples. Slots are
 * cut by the clock, so that a pair stays what it was while time goes on, and are the same for all series of the same times.
 */
export function slots(times, values, interval, most, span = WINDOW, of = mean) {
  const slot = Math.max(interval, 0.1) * Math.ceil(span / most / Math.max(interval, 0.1));
  const found = [];
  for (let begin = 0, end = 0; begin < times.length; begin = end) {
    const number = Math.floor(times[begin] / slot);
    while (end < times.length && Math.floor(times[end] / slot) === number) end += 1;
    const [before, last] = [found.at(-1)?.[0], times[end - 1]];
    if (last - before > 2.5 * slot) found.push([before + slot, null]);
    const known = values.slice(begin, end).filter((value) => value !== null);
    found.push([last, known.length ? of(known) : null]);
  }
  return found;
}
