// SPDX-License-Identifier: Apache-2.0
// Changes, told to those who don't see them.

import { count, visible } from "./format.js";
import { nameOf } from "./names.js";

const MOST = 3;

/** What has changed between two lists of VMs, as sentences. Pure. */
export function changes(before, after) {
  const known = new Map(before.map((vm) => [vm.uuid, vm]));
  const told = [];
  for (const vm of after) {
    const earlier = known.get(vm.uuid);
    if (!earlier) told.push(`${nameOf(vm)} has started: ${visible(vm.state)}`);
    else if (earlier.state !== vm.state) {
      told.push(`${nameOf(vm)} is ${visible(vm.state)} now${vm.reason ? `: ${visible(vm.reason)}` : ""}`);
    }
    known.delete(vm.uuid);
  }
  for (const vm of known.values()) told.push(`${nameOf(vm)} is gone`);
  return told.length > MOST ? [...told.slice(0, MOST), `and ${count(told.length - MOST, "more change")}`] : told;
}

/** Put sentences into a live region, in place of those that were there. */
export function tell(region, sentences) {
  if (sentences.length) region.textContent = `${sentences.join(". ")}.`;
}
