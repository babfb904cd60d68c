// SPDX-License-Identifier: Apache-2.0
// The letter, digit and colour of a group. Pure but for what Numbers remembers.

/** As in `vmqos cache show` (vmqos/cli/show/marks.py), which tells why. */
export function allot(names, count, given = new Map()) {
  const found = new Map(names.filter((name) => given.has(name)).map((name) => [name, given.get(name)]));
  const taken = new Set(found.values());
  const bearers = new Array(count).fill(0);
  for (const number of taken) bearers[number % count] += 1;
  for (const name of names) {
    if (found.has(name)) continue;
    const fewest = Math.min(...bearers);
    let mark = hash(name) % count;
    while (bearers[mark] > fewest) mark = (mark + 1) % count;
    let number = mark;
    while (taken.has(number)) number += count;
    found.set(name, number);
    taken.add(number);
    bearers[mark] += 1;
  }
  return found;
}

/** FNV-1a, 32 bits. */
function hash(name) {
  let found = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name)) found = Math.imul(found ^ byte, 0x01000193) >>> 0;
  return found;
}

// Capital letters first. An x is pseudo-locked memory.
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwyz";
const CAPITALS = 26;
const DIGITS = "123456789";
const COLOURS = 12;
const PATTERNS = 4;

/**
 * The marks of the groups of VMs and of classes: a group that has one keeps it for as long as the page is open, whoever
 * comes or goes.
 */
export class Numbers {
  #letters = new Map();
  #digits = new Map();
  #colours = new Map();

  /** Give every group of these its marks; `vms` are the running VMs, those that came first in front. */
  update(groups, vms) {
    const owners = new Map(groups.map((group) => [group.name, group.owner]));
    const arrived = [...new Set(vms.map((vm) => vm.group))].filter((name) => owners.has(name));
    const others = [...owners.keys()].filter((name) => !arrived.includes(name)).sort();
    const of = (owner) => [...arrived, ...others].filter((name) => owners.get(name) === owner);
    this.#letters = allot(of("vm"), CAPITALS, this.#letters);
    this.#colours = allot(of("vm"), COLOURS, this.#colours);
    this.#digits = allot(of("class"), DIGITS.length, this.#digits);
  }

  /** The symbol and the CSS class of a group. */
  look({ name, owner }) {
    if (owner === "vm" && this.#letters.has(name)) {
      const [letter, colour] = [this.#letters.get(name), this.#colours.get(name)];
      return {
        symbol: LETTERS[letter % LETTERS.length],
        style: `vm colour-${colour % COLOURS} pattern-${letter % PATTERNS}`,
      };
    }
    if (owner === "class" && this.#digits.has(name)) {
      return { symbol: DIGITS[this.#digits.get(name) % DIGITS.length], style: "class" };
    }
    return { symbol: { locked: "x", foreign: "#", default: "=" }[owner] ?? "-", style: owner };
  }
}
