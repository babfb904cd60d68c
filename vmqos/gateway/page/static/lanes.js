// SPDX-License-Identifier: Apache-2.0
// How the groups of a cache are laid out as a picture. Pure.

import { count, visible, waysOf } from "./format.js";
import { nameOf } from "./names.js";

const ORDER = ["vm", "class", "locked", "foreign", "default", "nobody"];

/** Caches of one level that are drawn one by one, alike or not: a machine with more has them by the dozen. */
const MOST_APART = 4;

/** What each group of these caches is called, by its name; `vms` are the running VMs. */
export function labelsOf(caches, vms) {
  const labels = new Map();
  const known = new Map(vms.map((vm) => [vm.uuid, nameOf(vm)]));
  for (const group of caches.flatMap((cache) => cache.groups)) {
    if (group.owner === "vm") {
      labels.set(group.name, known.get(group.vm) ?? visible(group.vm_name ?? `gone: ${group.name}`));
    } else if (group.owner === "class") {
      const members = vms.filter((vm) => vm.group === group.name).length;
      labels.set(group.name, `class ${visible(group.name.replace(/^vmqos\.shared-/, ""))}, ${count(members, "VM")}`);
    } else if (isLocked(group)) {
      const gone = group.name.startsWith("(");
      labels.set(group.name, `lock ${gone ? "group gone" : visible(group.name.replace(/^vmqos\.lock-/, ""))}`);
    } else {
      labels.set(group.name, group.owner === "default" ? "default group" : visible(group.name));
    }
  }
  return labels;
}

function isLocked(group) {
  return group.mode === "pseudo-locked";
}

/** The VMs' groups that have no ways of their own on a cache: they follow the default one there. */
export function strangersOf(cache, vms) {
  const ofL3 = cache.resource === "L3";
  const masks = new Map(vms.map((vm) => [vm.group, (ofL3 ? vm.masks : vm.l2_masks) ?? {}]));
  return cache.groups
    .filter(({ owner, name }) => owner === "vm" && masks.has(name) && !(String(cache.id) in masks.get(name)))
    .map((group) => ({ ...group, elsewhere: Object.keys(masks.get(group.name)).length > 0 }));
}

/**
 * The groups of a cache that hold ways there, the most particular first; last, ways that no group holds.
 *
 * A VM that can't run on this cache has a group that follows the default one, and is left out. In an L2, so is whoever
 * fills just what the default group does there.
 */
export function entriesOf(cache, vms) {
  const strangers = new Set(strangersOf(cache, vms).map((group) => group.name));
  const common = cache.groups.find((group) => group.owner === "default")?.mask;
  const dull = (group) => cache.resource !== "L3" && ["class", "foreign"].includes(group.owner) && group.mask === common;
  const entries = cache.groups
    .filter((group) => !strangers.has(group.name) && !dull(group))
    .map((group) => ({ ...group, owner: isLocked(group) ? "locked" : group.owner, ways: waysOf(group.mask) }));
  const held = new Set(cache.groups.flatMap((group) => waysOf(group.mask)));
  const free = waysOf(cache.cbm_mask).filter((way) => !held.has(way));
  if (free.length) entries.push({ name: "-", owner: "nobody", ways: free, mask: "" });
  return entries.sort(
    (one, other) => ORDER.indexOf(one.owner) - ORDER.indexOf(other.owner) || (other.ways[0] ?? -1) - (one.ways[0] ?? -1),
  );
}

/** An entry for code and one for data, where their ways are not the same; else the entry itself. */
export function partsOf(entry) {
  const { code_mask: code, data_mask: data } = entry;
  if (!code || !data || code === data) return [entry];
  return [["data", data], ["code", code]]
    .map(([part, mask]) => ({ ...entry, part, mask, ways: waysOf(mask) }))
    .sort((one, other) => (other.ways[0] ?? -1) - (one.ways[0] ?? -1));
}

/**
 * The caches in heaps to be drawn once each: those of a level with many that `content` is the same of.
 *
 * @param unfolded the levels whose caches are to be drawn one by one.
 */
export function heaps(caches, content, unfolded = new Set()) {
  const many = levelsOfMany(caches);
  const found = new Map();
  for (const cache of caches) {
    const apart = unfolded.has(cache.resource) || !many.includes(cache.resource);
    const key = `${cache.resource} ${apart ? cache.id : content(cache)}`;
    found.set(key, [...(found.get(key) ?? []), cache]);
  }
  return [...found.values()];
}

/** The levels, such as "L3", that have more caches than are drawn one by one. */
function levelsOfMany(caches) {
  const number = new Map();
  for (const { resource } of caches) number.set(resource, (number.get(resource) ?? 0) + 1);
  return [...number].filter(([, count]) => count > MOST_APART).map(([resource]) => resource);
}

/** The levels that have equal caches, which are drawn once unless they are unfolded. */
export function levelsToFold(caches, content) {
  const folded = heaps(caches, content).filter((heap) => heap.length > 1);
  return [...new Set(folded.map(([{ resource }]) => resource))];
}

/**
 * The entries in as few lines as possible, so that no way is in two entries of a line. Groups that share no way come
 * first: in a cache whose promises are kept they fill the first line.
 */
export function lanes(entries) {
  const found = [];
  const classes = (entry) => entry.owner === "class";
  for (const entry of [...entries.filter((one) => !classes(one)), ...entries.filter(classes)]) {
    let lane = found.find((one) => !entry.ways.some((way) => one.taken.has(way)));
    if (!lane) {
      lane = { entries: [], taken: new Set() };
      found.push(lane);
    }
    lane.entries.push(entry);
    for (const way of entry.ways) lane.taken.add(way);
  }
  return found.map((lane) => lane.entries);
}

/** Ways, highest first, as runs of neighbours: [[highest, how many], ...]. */
export function pieces(ways) {
  const found = [];
  for (const way of ways) {
    const last = found.at(-1);
    if (last && last[0] - last[1] === way) last[1] += 1;
    else found.push([way, 1]);
  }
  return found;
}

/** The exclusive VMs whose ways another group holds, too: what must never be. */
export function overlaps(entries) {
  const found = [];
  entries.forEach((entry, index) => {
    for (const other of entries.slice(index + 1)) {
      const both = entry.ways.filter((way) => other.ways.includes(way));
      if (entry.owner === "vm" && other.owner !== "nobody" && both.length) found.push({ entry, other, ways: both });
    }
  });
  return found;
}
