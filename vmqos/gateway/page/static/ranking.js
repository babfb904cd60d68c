// SPDX-License-Identifier: Apache-2.0
// Who moves most to and from memory: a neighbour that does is the first to be asked.

import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { portion, rate } from "./format.js";
import { nameOf } from "./names.js";

/** Seconds of the mean: a rate of one second would change places with every look. */
export const SECONDS = 60;

const MOST = 5;

/** The share of the minute's samples from which on nothing is said of those that have no value. */
const NEARLY_ALL = 0.9;

/**
 * The VMs that moved most in the last minute, as `{ vm, mean, share, known }`: bytes a second, 0 to 1 of all VMs', and for
 * which share of the minute it was counted: not for all of it where VMs take turns to have hardware counters. Pure.
 */
export function ranked(vms, history) {
  const means = vms.map((vm) => ({ vm, mean: history.mean(vm.uuid, "total", SECONDS) })).filter(({ mean }) => mean !== null);
  const all = means.reduce((sum, { mean }) => sum + mean, 0);
  return means
    .sort((one, other) => other.mean - one.mean)
    .slice(0, MOST)
    .map(({ vm, mean }) => ({ vm, mean, share: all ? mean / all : 0, known: history.known(vm.uuid, "total", SECONDS) }));
}

export class Ranking {
  /** @param open called with the UUID of the VM that a user chose. */
  constructor(section, list, open) {
    this.section = section;
    this.list = list;
    this.open = open;
  }

  update(vms, history) {
    const found = ranked(vms, history);
    show(this.section, found.length > 0);
    keyed(this.list, found, {
      key: ({ vm }) => vm.uuid,
      create: ({ vm }) => this.#line(vm.uuid),
      update: (line, one) => this.#update(line, one),
      otherwise: document.getElementById("ranking-title"),
    });
  }

  #line(uuid) {
    const name = make("button", { type: "button", class: "link" }, make("bdi"));
    name.addEventListener("click", () => this.open(uuid));
    const bar = make("span", { class: "meter", "aria-hidden": "true" }, make("span"));
    return make("li", {}, name, bar, make("span", { class: "value" }), make("span", { class: "dim" }));
  }

  #update(line, { vm, mean, share, known }) {
    const [name, bar, value, part] = line.children;
    setAttribute(line, "data-group", vm.group || null);
    setText(name.firstChild, nameOf(vm));
    bar.firstChild.style.inlineSize = `${(100 * share).toFixed(1)}%`;
    setText(value, known < NEARLY_ALL ? `~${rate(mean)}` : rate(mean));
    setAttribute(value, "title", known < NEARLY_ALL ? `counted for ${portion(known)} of the last minute` : null);
    setText(part, share < 0.005 ? "under 1 %" : `${Math.round(100 * share)} %`);
  }
}
