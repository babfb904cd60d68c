// SPDX-License-Identifier: Apache-2.0
// How old what the agent knows is, in words. Pure.

import { duration } from "./format.js";

const LAST = { vms: "looked at all VMs", pass: "ended a pass without an error", counters: "read the counters" };

/** What of the agent's knowledge is old, as sentences; "" where nothing is, or an older agent does not tell. */
export function oldness(health) {
  const parts = (health?.stale ?? []).filter((name) => name in LAST).map((name) => {
    const age = health.ages?.[name] ?? null;
    return age === null ? `has not ${LAST[name]} yet` : `last ${LAST[name]} ${duration(age)} ago`;
  });
  if (!parts.length) return "";
  const listed = parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}` : parts[0];
  return `What you see is old, although the agent answers: it ${listed}.`;
}

/** When the host was as it is shown, in seconds since 1970, if the agent answered at that time. */
export function shownOf(health, answered) {
  return answered - (health?.ages?.vms ?? 0);
}

/** The same health so many seconds later, if the agent told nothing since then: all that has an age is old. */
export function later(health, seconds) {
  const known = Object.entries(health.ages ?? {}).filter(([, age]) => age !== null);
  return { ...health, ages: Object.fromEntries(known.map(([name, age]) => [name, age + seconds])), stale: known.map(([name]) => name) };
}

/** The ages of the looks that have one: "VMs 0 s ago, counters 2 s ago". */
export function agesOf(health) {
  const titles = { vms: "VMs", counters: "counters" };
  return Object.entries(titles)
    .filter(([name]) => (health.ages?.[name] ?? null) !== null)
    .map(([name, title]) => `${title} ${duration(health.ages[name])} ago`)
    .join(", ");
}

/** The ages of those of these looks that are old, to stand beside figures that come of them: "counters 40 s ago". */
export function oldAges(health, names) {
  const titles = { vms: "VMs", pass: "groups", counters: "counters" };
  return names
    .filter((name) => (health?.stale ?? []).includes(name))
    .map((name) => `${titles[name]} ${(health.ages?.[name] ?? null) === null ? "not seen yet" : `${duration(health.ages[name])} ago`}`)
    .join(", ");
}
