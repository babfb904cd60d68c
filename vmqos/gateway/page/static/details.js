// SPDX-License-Identifier: Apache-2.0
// Everything about one VM.

import { asked } from "./attention.js";
import { happened } from "./changelist.js";
import { Chart } from "./chart.js";
import { Curve } from "./curve.js";
import { MINUTE } from "./day.js";
import { keyed, make, setAttribute, setText } from "./dom.js";
import { EXECUTED, SHARE } from "./executed.js";
import { clock, duration, eachCache, events as eventRate, lack, lastMeasured, limitOf, listOf, moment, portion, power, rate, ratio, size, visible, why } from "./format.js";
import { fullness, percent } from "./fullness.js";
import { packagesOf } from "./packages.js";
import { BYTES } from "./scale.js";

const BANDWIDTHS = ["total", "local", "remote"];

/** Changes of a VM that are told beside its other fields. */
const MOST_CHANGES = 5;

/** The times that charts can show. */
const CHARTS = { minutes: "10 minutes", day: "1 day" };

/** What is told of what a VM's tasks execute: the title, and how a value becomes a text. */
const TOLD = {
  instructions_per_cycle: ["Instructions per cycle", ratio],
  instructions: ["Instructions", eventRate],
  cache_misses: ["Cache misses", eventRate],
};

/**
 * Groups of charts that are drawn where the time of the charts has a value of any of them: of each chart the title, its series
 * with their titles, and how a value becomes a text.
 */
const FURTHER = [
  EXECUTED.map((name) => [TOLD[name][0], { [name]: TOLD[name][0].toLowerCase() }, TOLD[name][1]]),
  [
    ["Power of the cores", { core_watts: "power" }, power],
    ["Micro-operations per cycle", { uops_per_cycle: "micro-operations" }, ratio],
    ["Cycles stalled on loads", { llc_miss_stalls: "L3 misses", llc_hit_stalls: "L3 hits" }, portion],
  ],
];

const EVENTS = { llc_occupancy: "occupancy", mbm_total_bytes: "bandwidth", mbm_local_bytes: "local bandwidth" };

/**
 * The VM's fields as pairs of title and text; those that say nothing are left out. Pure.
 *
 * @param counted the host's counters.
 * @param executed what the VM's tasks execute (executed.js).
 */
export function fieldsOf(vm, reading, counted, executed, now) {
  const fields = [
    ["State", `${visible(vm.state)} since ${moment(vm.since)} (${duration(now - vm.since)})`],
    ["Reason", visible(vm.reason)],
    ["UUID", visible(vm.uuid)],
    ["Instance name", visible(vm.instance_name)],
    ["libvirt name", visible(vm.name)],
    ["Flavor", visible(vm.flavor)],
    ["Project", visible(vm.project)],
    ["Asks for", asked(vm)],
    ["vCPUs with the ways", vm.vcpus_requested ? vcpusOf(vm) : ""],
    ["Masks", eachCache(vm.masks, visible)],
    ["Masks for code", eachCache(vm.code_masks ?? {}, visible)],
    ["Masks for data", eachCache(vm.data_masks ?? {}, visible)],
    ["L2 masks", eachCache(vm.l2_masks ?? {}, visible)],
    ["Memory bandwidth", limitOf(vm) ? `at most ${limitOf(vm)}` : vm.bandwidth_requested ? "no limit" : ""],
    ["Can run on", vm.caches.length ? `cache${vm.caches.length > 1 ? "s" : ""} ${listOf(vm.caches)}` : ""],
    ["Control group", vm.group ? visible(vm.group) : "the default group"],
    ["Monitored by", monitoring(vm)],
    ["Tasks in place", `${vm.tasks_in_place} of ${vm.tasks}`],
    ["CPU outside of group", outside(vm)],
    ["Main process", String(vm.pid)],
    ["Last error", vm.last_error ? visible(vm.last_error) : ""],
    ["Next try", vm.retry_in === null ? "" : `in ${duration(vm.retry_in)}`],
  ];
  if (reading) {
    const promised = new Map(fullness(reading, counted).map((one) => [one.cache, one]));
    const told = (events, cache) => occupancy(events.llc_occupancy ?? null, promised.get(cache));
    fields.push(["Occupancy by cache", eachCache(reading.caches, told)]);
    const parts = ["local", "remote"].filter((name) => (reading.rates?.[name] ?? null) !== null);
    fields.push(["Bandwidth now", parts.map((name) => `${rate(reading.rates[name])} ${name}`).join(", ")]);
    if (lastMeasured(reading)) fields.push(["Bandwidth before", lastMeasured(reading)]);
    const lacking = new Map();
    for (const [event, reason] of Object.entries(reading.missing ?? {})) {
      lacking.set(reason, [...(lacking.get(reason) ?? []), visible(EVENTS[event] ?? event)]);
    }
    for (const [reason, events] of lacking) fields.push([`No value: ${events.join(", ")}`, why(reason)]);
  }
  return [...fields, ...executedFields(executed), ...packageFields(packagesOf(reading))].filter(([, text]) => text);
}

function executedFields({ values, share, reason }) {
  if (!values) return [["Hardware counts", `none: ${reason}`]];
  const fields = EXECUTED.map((name) => {
    const [title, format] = TOLD[name];
    return [`${title} now`, values[name] === null ? "its tasks did not run" : format(values[name])];
  });
  const had = `the VM had the processor's counters for ${Math.min(99, Math.floor(100 * share))} % of its time`;
  return [...fields, ["Hardware counts", share !== null && share < 1 ? `estimates: ${had}` : ""]];
}

function packageFields(values) {
  if (!values) return [];
  const { core_watts: watts, uops_per_cycle: uops, llc_hit_stalls: hits, llc_miss_stalls: misses } = values;
  const stalls = [[misses, "misses"], [hits, "hits"]].filter(([share]) => share !== null);
  return [
    ["Power of the cores now", watts === null ? "" : power(watts)],
    ["Micro-operations per cycle now", uops === null ? "" : ratio(uops)],
    ["Cycles stalled on loads now", stalls.map(([share, which]) => `${portion(share)} on L3 ${which}`).join(", ")],
  ];
}

function occupancy(value, promised) {
  if (value === null) return "no value";
  return promised ? `${size(value)} of ${size(promised.granted)} (${percent(promised)})` : size(value);
}

function vcpusOf(vm) {
  if (vm.vcpus === null) return `${visible(vm.vcpus_requested)}; which of them it has is not known`;
  return `${visible(vm.vcpus || "none")} of ${visible(vm.vcpus_requested)}`;
}

function monitoring(vm) {
  if (vm.monitoring_group) return visible(vm.monitoring_group);
  if (vm.unmonitored_reason) return `nothing: ${visible(vm.unmonitored_reason)}`;
  return vm.group ? "its control group" : "nothing";
}

function outside(vm) {
  const [start, later] = [vm.outside_at_start ?? null, vm.outside_later ?? null];
  if (later === null) return "";
  if (start === null) return `not known of its start, ${(later * 1e3).toFixed(1)} ms since the agent found it`;
  return `${(start * 1e3).toFixed(1)} ms at its start, ${(later * 1e3).toFixed(1)} ms since`;
}

export class Details {
  /** @param choose called with the time that the charts are to show, a key of `CHARTS`. */
  constructor(choose) {
    this.fields = make("dl");
    this.occupancy = new Chart("Cache occupancy, all caches together", ["occupancy"], size, BYTES);
    this.bandwidth = new Chart("Memory bandwidth", BANDWIDTHS, rate, BYTES);
    this.charts = make("div", { class: "charts" }, this.occupancy.element, this.bandwidth.element);
    this.further = FURTHER.map(() => []);
    this.choices = Object.entries(CHARTS).map(([key, text]) => {
      const button = make("button", { type: "button", "data-charts": key }, text);
      button.addEventListener("click", () => choose(key));
      return button;
    });
    const choice = make("div", { class: "choice", role: "group", "aria-label": "Time of the charts" }, ...this.choices);
    this.curve = new Curve();
    this.element = make("div", { class: "detail" }, choice, this.charts, this.curve.element, this.fields);
  }

  /**
   * @param events what happened to the VM, the oldest first (events.js).
   * @param charts the time that the charts show; `day` has the minutes of the VMs that show them (day.js).
   * @param sizes how many ways VMs need (sizes.js).
   */
  update({ vm, reading, history, day, charts, counted, executed, sizes, now, events }) {
    setAttribute(this.charts, "aria-busy", history.isComing(vm.uuid) ? "true" : null);
    const told = events.map((event) => ({ time: event.time, text: happened(event) }));
    const drawn = (names) => ({ ...dataOf(charts, vm.uuid, history, day, names), now: history.latest, events: told });
    const none = (reason) => lack(vm, reading, counted, reason);
    const [noOccupancy, noBandwidth] = [none(reading?.missing?.llc_occupancy), none(reading?.rates_missing?.total)];
    this.occupancy.draw({ none: noOccupancy, ...drawn(["llc_occupancy"]), limit: reading?.allocated_bytes ?? null });
    this.bandwidth.draw({ none: noBandwidth, ...drawn(BANDWIDTHS), limit: null });
    FURTHER.forEach((_, index) => this.#drawFurther(index, drawn));
    this.curve.update(sizes.of(vm.uuid), now);
    for (const button of this.choices) setAttribute(button, "aria-pressed", String(button.dataset.charts === charts));
    const last = told.slice(-MOST_CHANGES).reverse().map(({ time, text }) => `${clock(time)} ${text}`).join("; ");
    const fields = fieldsOf(vm, reading, counted, executed.of(vm.uuid), now);
    if (last) fields.splice(2, 0, ["Last changes, UTC", last]);
    keyed(this.fields, fields, {
      key: ([title]) => title,
      create: ([title]) => make("div", {}, make("dt", {}, title), make("dd", {}, make("bdi"))),
      update: (element, [, text]) => setText(element.lastChild.firstChild, text),
    });
  }

  /** Draw a group of charts, if the time of the charts has a value of it; else there is none of them. */
  #drawFurther(group, drawn) {
    const found = FURTHER[group].map(([, series]) => drawn(Object.keys(series)));
    const isCounted = found.some(({ values }) => values.some((series) => series.some((value) => value !== null)));
    const charts = this.further[group];
    if (isCounted && !charts.length) {
      charts.push(...FURTHER[group].map(([title, series, format]) => new Chart(title, Object.values(series), format)));
    }
    if (!isCounted) for (const chart of charts) chart.element.remove();
    else if (!charts[0].element.parentNode) {
      // The groups stand in their order, whichever of them came first.
      const later = this.further.slice(group + 1).flat().find((chart) => chart.element.parentNode);
      for (const chart of charts) this.charts.insertBefore(chart.element, later?.element ?? null);
    }
    if (!isCounted) return;
    const { values, bands } = drawn([SHARE]);
    // Only what perf counts is estimated.
    const shares = group === 0 ? bands?.[0].least ?? values[0] : null;
    charts.forEach((chart, index) => chart.draw({ ...found[index], limit: null, shares }));
  }
}

/** What a chart of these series draws. */
function dataOf(charts, uuid, history, day, names) {
  if (charts !== "day") {
    const { times, interval, span } = history;
    return { times, interval, span, values: names.map((name) => history.values(uuid, name)) };
  }
  const { times, span, problem, ...series } = day.of(uuid);
  const bands = names.map((name) => series[name] ?? { least: [], mean: [], greatest: [] });
  const none = problem ? { none: problem } : {};
  return { times, interval: MINUTE, span, values: bands.map((band) => band.mean), bands, ...none };
}
