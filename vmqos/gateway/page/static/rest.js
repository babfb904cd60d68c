// SPDX-License-Identifier: Apache-2.0
// The bandwidth of what is in no VM's group: the host's own tasks, classes, and other programs' groups. Pure.

/** Seconds between two looks, at most: the mean of a longer time would not be of now. */
const LONGEST = 60;

/** Bytes a second between two answers of the agent; null where that is not known. */
export function rateBetween(before, now) {
  const seconds = now.taken_at - before.taken_at;
  const then = before.host.groups ?? {};
  // What a group did before it was seen the first time is not known.
  const seen = Object.entries(now.host.groups ?? {}).filter(([name, { generation }]) => then[name]?.generation === generation);
  if (seconds <= 0 || seconds > LONGEST || !seen.length) return null;
  let moved = 0;
  for (const [name, { caches }] of seen) {
    for (const [cache, { mbm_total_bytes: bytes = null }] of Object.entries(caches)) {
      const earlier = then[name].caches[cache]?.mbm_total_bytes ?? null;
      if (bytes === null || earlier === null) return null;
      // Where a VM ends, the kernel takes what it moved out of the default group's counters.
      moved += Math.max(0, bytes - earlier);
    }
  }
  return moved / seconds;
}

export class Rest {
  #before = null;
  value = null;

  /** Take the agent's last look, which may be the one before, or null. */
  hear(telemetry) {
    if (!telemetry || telemetry.taken_at === this.#before?.taken_at) return;
    this.value = this.#before && rateBetween(this.#before, telemetry);
    this.#before = telemetry;
  }
}
