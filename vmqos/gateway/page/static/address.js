// SPDX-License-Identifier: Apache-2.0
// What of the page is in its address: what is looked for, the order, the VMs that are unfolded, the time of their
// charts, and the levels of cache that are unfolded. A link to it opens the same. Pure but for `Address`.

import { KEYS } from "./order.js";

/** What is shown where the address says nothing. */
export const FIRST = { find: "", key: "state", descending: false, unfolded: [], charts: "minutes", apart: [] };

/** Characters of what is looked for, and VMs, that are taken from an address: anyone can write one. */
const LONGEST = 200;
const MOST = 50;

/** The levels of cache that can be partitioned. */
const LEVELS = ["L3", "L2"];

/** The view that an address has, such as "?find=web&sort=ways&vm=4f2c…"; what is no order or too much is left out. */
export function viewOf(search) {
  const fields = new URLSearchParams(search);
  const key = Object.hasOwn(KEYS, fields.get("sort") ?? "") ? fields.get("sort") : FIRST.key;
  return {
    find: (fields.get("find") ?? "").slice(0, LONGEST),
    key,
    descending: (fields.get("order") ?? usual(key)) === "descending",
    unfolded: [...new Set(fields.getAll("vm").map((uuid) => uuid.slice(0, LONGEST)))].slice(0, MOST),
    charts: fields.get("charts") === "day" ? "day" : FIRST.charts,
    apart: [...new Set(fields.getAll("each"))].filter((level) => LEVELS.includes(level)),
  };
}

/** The address of a view: "" where it is as at first. */
export function addressOf({ find, key, descending, unfolded, charts, apart }) {
  const fields = new URLSearchParams();
  if (find) fields.set("find", find);
  const order = descending ? "descending" : "ascending";
  if (key !== FIRST.key || order !== usual(key)) fields.set("sort", key);
  if (order !== usual(key)) fields.set("order", order);
  for (const uuid of unfolded) fields.append("vm", uuid);
  if (charts !== FIRST.charts) fields.set("charts", charts);
  for (const level of apart) fields.append("each", level);
  const text = fields.toString();
  return text && `?${text}`;
}

function usual(key) {
  return KEYS[key].descending ? "descending" : "ascending";
}

/** The address line of this window. */
export class Address {
  /** Where the focus was at each step, by the number of the step: who goes back finds it there again. */
  #left = new Map();
  #number = history.state ?? 0;

  /** @param changed called with the view that the user went back, or forward, to. */
  constructor(changed) {
    addEventListener("popstate", ({ state }) => {
      const to = state ?? 0;
      const left = to < this.#number ? this.#left.get(to + 1) : null;
      this.#number = to;
      changed(this.view);
      left?.focus({ preventScroll: true });
    });
  }

  get view() {
    return viewOf(location.search);
  }

  /** Show a view's address; a step is one that the back button undoes. What is typed is no step: each letter would be one. */
  show(view, { step }) {
    const address = `${location.pathname}${addressOf(view)}`;
    if (address === location.pathname + location.search) return;
    if (!step) return history.replaceState(history.state, "", address);
    this.#number += 1;
    this.#left.set(this.#number, document.activeElement);
    history.pushState(this.#number, "", address);
  }
}
