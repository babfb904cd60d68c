// SPDX-License-Identifier: Apache-2.0
// How full ways are: those of a VM, and those of each group of a cache. Pure.

import { waysOf } from "./format.js";

/**
 * What a VM holds of each cache where it was promised ways, and how many bytes these are, in the order of the caches.
 * A VM that has one cache full and nothing on another lacks cache: the sum over both does not tell.
 *
 * @param reading the VM's counters.
 * @param host the host's, which tell the size of the caches.
 */
export function fullness(reading, host) {
  const found = [];
  for (const [cache, ways] of Object.entries(reading?.ways ?? {})) {
    const [bytes, every] = [host?.cache_bytes?.[cache], host?.ways?.[cache]];
    const held = reading.caches?.[cache]?.llc_occupancy ?? null;
    if (reading.policy === null || !ways || !bytes || !every || held === null) continue;
    found.push({ cache, held, granted: Math.floor((bytes * ways) / every) });
  }
  return found.sort((one, other) => one.cache - other.cache);
}

/** The one that is fullest; undefined where there is none. */
export function fullest(caches) {
  return caches.reduce((most, one) => (most && share(most) >= share(one) ? most : one), undefined);
}

/** How full, from 0 up. It can be more than 1: a VM keeps lines in ways that it had before. */
export function share({ held, granted }) {
  return held / granted;
}

/** The same as people read it: "98 %". Only what is full is told as full. */
export function percent(one) {
  const part = share(one);
  return `${part < 1 ? Math.min(99, Math.round(100 * part)) : Math.round(100 * part)} %`;
}

/**
 * How full the ways of each group of an L3 are, by the group's name. A group is left out where there is no value for it,
 * or for one of the VMs of a class.
 *
 * @param readings the VMs' counters.
 * @param host the host's, which have those of the default group and of the VMs in it.
 */
export function fullnessOfGroups(cache, readings, host) {
  if (cache.resource !== "L3" || !cache.way_bytes) return new Map();
  const held = new Map();
  const add = (group, counters) => {
    const before = held.has(group) ? held.get(group) : 0;
    const now = counters?.[cache.id]?.llc_occupancy ?? null;
    held.set(group, before === null || now === null ? null : before + now);
  };
  for (const reading of Object.values(readings)) if (reading.group) add(reading.group, reading.caches);
  add("", host?.caches);
  const found = new Map();
  for (const { name, mask } of cache.groups) {
    const granted = waysOf(mask).length * cache.way_bytes;
    if (granted && (held.get(name) ?? null) !== null) found.set(name, { cache: cache.id, held: held.get(name), granted });
  }
  return found;
}
