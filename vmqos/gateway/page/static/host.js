// SPDX-License-Identifier: Apache-2.0
// The host in a line: its health, versions, caches, and what is left of CLOSIDs and RMIDs.

import { keyed, make, setText } from "./dom.js";
import { byCache, count, duration, rate, size, visible, waysOf } from "./format.js";
import { agesOf } from "./freshness.js";

/** The facts as pairs of title and text; `rest` is the bandwidth of what is in no VM's group (rest.js). Pure. */
export function factsOf({ health, vms, caches, capabilities, telemetry, rest = null }) {
  const facts = totalsOf(vms, caches.filter((cache) => cache.resource === "L3"), telemetry);
  if (rest !== null) facts.push(["Bandwidth outside of VMs", rate(rest)]);
  if (health) {
    facts.push(["Agent", `${visible(health.version)}, up ${duration(health.uptime_seconds)}`]);
    facts.push(["Last pass", `${health.last_pass_ms.toFixed(health.last_pass_ms < 10 ? 1 : 0)} ms`]);
    if (agesOf(health)) facts.push(["Last looks", agesOf(health)]);
    const kind = health.resctrl.simulated ? "simulated" : health.resctrl.mounted ? "the kernel's" : "not mounted";
    const unknown = health.status === "starting" && "first look under way";
    const options = (capabilities?.mount_options ?? []).map(visible);
    facts.push(["resctrl", [health.resctrl.mounted ? kind : unknown || kind, ...options].join(", ")]);
    const connected = health.libvirt.connected ? "connected" : unknown || "not connected";
    const unwatched = health.libvirt.watch_error ? ", starts of VMs are not watched" : "";
    facts.push(["libvirt", `${connected}${unwatched}`]);
  }
  if (caches.length) facts.push(["Caches", cachesOf(caches)]);
  const limits = capabilities?.bandwidths?.MB;
  if (limits) facts.push(["Bandwidth limits", stepsOf(limits)]);
  if (capabilities) {
    // A group that has locked something has given its CLOSID back.
    const holders = (cache) => cache.groups.filter((group) => group.mode !== "pseudo-locked");
    const groups = Math.max(0, ...caches.map((cache) => holders(cache).length));
    facts.push(["CLOSIDs", `${groups} of ${capabilities.num_closids} in use`]);
    const monitoring = capabilities.monitoring;
    const used = telemetry ? `${telemetry.host.rmids_used} of ${monitoring?.num_rmids} in use` : String(monitoring?.num_rmids);
    facts.push(["RMIDs", monitoring ? used : "nothing is monitored"]);
  }
  return facts;
}

/** What all VMs have together. */
function totalsOf(vms, caches, telemetry) {
  const facts = [["VMs", String(vms.length)]];
  const promised = vms.filter((vm) => vm.state !== "none").length;
  const kept = vms.filter((vm) => vm.state === "kept").length;
  facts.push(["Promises", promised ? `${kept} of ${promised} kept` : "none"]);
  if (caches.length) {
    const told = (cache) => `${heldOf(cache, vms)} of ${cache.ways} promised, ${cache.free_ways} free`;
    facts.push(["L3 ways", byCache(Object.fromEntries(caches.map((cache) => [cache.id, cache])), told)]);
  }
  if (telemetry) facts.push(["All VMs' bandwidth", trafficOf(vms.map((vm) => telemetry.vms[vm.uuid]))]);
  return facts;
}

/** How many ways of a cache VMs have for themselves. */
function heldOf(cache, vms) {
  const masks = vms.filter((vm) => vm.policy !== "shared").map((vm) => vm.masks[cache.id] ?? "0");
  return new Set(masks.flatMap(waysOf)).size;
}

/** The bandwidth of the VMs that have one, and its remote part where the machine counts that; some have no reading. */
function trafficOf(readings) {
  const known = readings.filter((reading) => (reading?.rates?.total ?? null) !== null);
  if (!known.length) return "no values";
  const sum = (name) => known.reduce((all, reading) => all + reading.rates[name], 0);
  const of = known.length < readings.length ? ` of ${known.length} of them` : "";
  const apart = known.every((reading) => (reading.rates.remote ?? null) !== null);
  return `${rate(sum("total"))}${of}${apart ? `, ${rate(sum("remote"))} remote` : ""}`;
}

/** What limits of memory bandwidth are rounded up to: per cent; MB/s of the kernel's; AMD's 1/8 GB/s, 125 MB/s. */
function stepsOf({ unit, bandwidth_gran: step }) {
  if (unit === "percent") return `in steps of ${step} %`;
  return unit === "MBps" ? "in MB/s" : `in steps of ${step * 125} MB/s`;
}

function cachesOf(caches) {
  const kinds = new Map();
  for (const cache of caches) {
    const kind = `${visible(cache.resource)}, ${count(cache.ways, "way")}${cache.size_bytes ? `, ${size(cache.size_bytes)}` : ""}`;
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  return [...kinds].map(([kind, number]) => (number > 1 ? `${number} × ${kind} each` : kind)).join("; ");
}

/** Show them in a description list. */
export function update(list, state) {
  showFacts(list, factsOf(state));
}

/** Show the one fact about a host whose agent has not answered yet. */
export function updateUnheard(list) {
  showFacts(list, [["Agent", "has not answered yet"]]);
}

function showFacts(list, facts) {
  keyed(list, facts, {
    key: ([title]) => title,
    create: ([title]) => make("div", {}, make("dt", {}, title), make("dd")),
    update: (element, [, text]) => setText(element.lastChild, text),
  });
}
