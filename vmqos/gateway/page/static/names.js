// SPDX-License-Identifier: Apache-2.0
// What VMs are called. Pure.

import { visible } from "./format.js";

/** The VMs, each with a `tag`: as much of its UUID as tells it from others of its name, or "" where it has none. */
export function toldApart(vms) {
  const bearers = new Map();
  for (const vm of vms) {
    const name = baseOf(vm);
    bearers.set(name, [...(bearers.get(name) ?? []), vm.uuid]);
  }
  return vms.map((vm) => {
    const uuids = bearers.get(baseOf(vm));
    return { ...vm, tag: uuids.length > 1 ? visible(beginning(vm.uuid, uuids)) : "" };
  });
}

/** As much of a UUID as none of the others begins with, to the end of one of its parts. */
function beginning(uuid, uuids) {
  const parts = uuid.split("-");
  for (let count = 1; count < parts.length; count += 1) {
    const found = parts.slice(0, count).join("-");
    if (uuids.filter((one) => one.startsWith(found)).length === 1) return found;
  }
  return uuid;
}

/** The name of a VM, as its user sees it: Nova's, else libvirt's. */
export function baseOf(vm) {
  return visible(vm.instance_name || vm.name);
}

/** The same, told from VMs of one name. */
export function nameOf(vm) {
  return vm.tag ? `${baseOf(vm)} (${vm.tag})` : baseOf(vm);
}

/** Names in the order that people expect. */
export function compare(one, other) {
  return one.localeCompare(other, undefined, { numeric: true, sensitivity: "base" });
}
