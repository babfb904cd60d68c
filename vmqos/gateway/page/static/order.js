// SPDX-License-Identifier: Apache-2.0
// Which VMs are listed, and in which order. Pure.

import { waysOf } from "./format.js";
import { compare, nameOf } from "./names.js";
import { packagesOf } from "./packages.js";

const URGENCY = ["degraded", "pending", "kept", "none"];

/** What VMs are sorted by; what has no value comes last. */
export const KEYS = {
  name: { of: (vm) => nameOf(vm) },
  state: { of: (vm) => URGENCY.indexOf(vm.state) },
  ways: { of: (vm) => Math.max(0, ...Object.values(vm.masks).map((mask) => waysOf(mask).length)), descending: true },
  occupancy: { of: (vm, reading) => reading?.totals.llc_occupancy ?? null, descending: true },
  total: { of: (vm, reading) => reading?.rates?.total ?? null, descending: true },
  local: { of: (vm, reading) => reading?.rates?.local ?? null, descending: true },
  remote: { of: (vm, reading) => reading?.rates?.remote ?? null, descending: true },
  ipc: { of: (vm, reading, executed) => executed?.instructions_per_cycle ?? null },
  misses: { of: (vm, reading, executed) => executed?.cache_misses ?? null, descending: true },
  power: { of: (vm, reading) => packagesOf(reading)?.core_watts ?? null, descending: true },
  flavor: { of: (vm) => vm.flavor },
};

/**
 * The VMs in the order of a key; those that are alike in the order of their names.
 *
 * @param executed what their tasks execute, by their UUIDs (executed.js).
 */
export function sorted(vms, readings, executed, { key, descending }) {
  const { of } = KEYS[key];
  const values = new Map(vms.map((vm) => [vm, of(vm, readings[vm.uuid], executed.get(vm.uuid))]));
  const sign = descending ? -1 : 1;
  return [...vms].sort((one, other) => {
    const [a, b] = [values.get(one), values.get(other)];
    if (a === null || b === null) return (a === null) - (b === null) || byName(one, other);
    const way = typeof a === "string" ? compare(a, b) : a - b;
    return sign * way || byName(one, other);
  });
}

function byName(one, other) {
  return compare(nameOf(one), nameOf(other)) || compare(one.uuid, other.uuid);
}

/** The VMs that have every word of what was typed somewhere in their fields, or at the beginning of their UUID. */
export function found(vms, typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return vms.filter((vm) => {
    const text = [vm.instance_name, vm.name, vm.flavor, vm.project, vm.state, vm.policy].join(" ").toLowerCase();
    return words.every((word) => text.includes(word) || vm.uuid.startsWith(word));
  });
}

/** The VMs in the order that they were in before; new ones at the end. */
export function held(vms, before) {
  const places = new Map(before.map((uuid, place) => [uuid, place]));
  const place = (vm) => places.get(vm.uuid) ?? before.length;
  return [...vms].sort((one, other) => place(one) - place(other));
}
