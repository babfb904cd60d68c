// SPDX-License-Identifier: Apache-2.0
// What the VMs' tasks execute, where the agent counts it, and else why it does not. Pure but for `Executed`.

import { duration, visible } from "./format.js";

/** Series of a VM, as the agent remembers them: instructions for each cycle, and the others a second. */
export const EXECUTED = ["instructions_per_cycle", "instructions", "cache_misses"];

/** The series that says where these are estimates: the share of its time for which a VM had the processor's counters. */
export const SHARE = "counters_share";

/**
 * What the agent's last look has of a VM: the `values` of EXECUTED by name, or null; the `share` of the time for which the
 * VM's tasks had the processor's counters; and the `reason` for what is not there.
 */
export function executedOf(answer, uuid) {
  const nothing = { values: null, share: null };
  if (answer.unavailable) return { ...nothing, reason: visible(answer.unavailable) };
  const age = answer.age_seconds ?? 0;
  if (age > 3 * answer.interval + 5) return { ...nothing, reason: `the agent counted ${duration(age)} ago and not since` };
  const vm = answer.vms[uuid];
  if (!vm) return { ...nothing, reason: "the agent has not begun to count this VM" };
  if (vm.reason) return { ...nothing, reason: visible(vm.reason) };
  const { cycles, instructions, cache_misses: misses } = vm.rates;
  if (instructions === null) {
    return { ...nothing, reason: vm.share === 0 ? "other programs had the processor's counters" : "its first figures come with the next look" };
  }
  const values = { instructions_per_cycle: cycles ? instructions / cycles : null, instructions, cache_misses: misses, [SHARE]: vm.share };
  return { values, share: vm.share, reason: "" };
}

/** What the agent says. */
export class Executed {
  #answer = { unavailable: "the agent was not asked yet", vms: {} };

  /** Take an answer: its `value`, or the agent's `error`. */
  hear({ value, error }) {
    this.#answer = value ?? { unavailable: `the agent does not tell: ${error}`, vms: {} };
  }

  of(uuid) {
    return executedOf(this.#answer, uuid);
  }

  /** The values of all VMs that are counted, by their UUIDs. */
  get values() {
    const found = Object.keys(this.#answer.vms).map((uuid) => [uuid, this.of(uuid).values]);
    return new Map(found.filter(([, values]) => values));
  }
}
