// SPDX-License-Identifier: Apache-2.0
// How full a VM's ways are, cache by cache. Pure.

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
