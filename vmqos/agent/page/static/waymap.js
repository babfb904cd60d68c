// SPDX-License-Identifier: Apache-2.0
// The map of each cache's ways: who may fill which.

import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { count, size, visible, waysOf } from "./format.js";
import { entriesOf, labelsOf, lanes, overlaps, pieces } from "./lanes.js";

export class WayMap {
  /**
   * @param root holds one figure a cache.
   * @param none says that there is nothing to draw.
   * @param numbers the groups' symbols.
   * @param open called with the UUID of the VM that a user chose.
   */
  constructor(root, none, numbers, open) {
    this.root = root;
    this.none = none;
    this.numbers = numbers;
    this.open = open;
  }

  update(caches, vms, problem) {
    setText(this.none, problem ?? "This host has no L3 cache that can be partitioned.");
    show(this.none, !caches.length);
    const labels = labelsOf(caches, vms);
    this.numbers.update(caches.flatMap((cache) => cache.groups), labels);
    keyed(this.root, caches, {
      key: (cache) => `${cache.resource} ${cache.id}`,
      create: () => new CacheFigure(this.numbers, this.open).element,
      update: (figure, cache) => figures.get(figure).update(cache, vms, labels),
      otherwise: document.getElementById("ways-title"),
    });
  }
}

const figures = new WeakMap();

class CacheFigure {
  constructor(numbers, open) {
    this.numbers = numbers;
    this.open = open;
    this.title = make("h3");
    this.facts = make("p", { class: "dim" });
    this.room = make("p", { class: "room" });
    this.picture = make("div", { class: "picture", "aria-hidden": "true" });
    this.warnings = make("ul", { class: "warnings" });
    this.key = make("ul", { class: "key" });
    this.element = make(
      "article",
      { class: "cache" },
      make("header", {}, this.title, this.facts, this.room),
      this.picture,
      this.warnings,
      this.key,
    );
    this.picture.addEventListener("click", (event) => {
      const uuid = event.target.closest("[data-vm]")?.dataset.vm;
      if (uuid) open(uuid);
    });
    this.drawn = "";
    figures.set(this.element, this);
  }

  update(cache, vms, labels) {
    const entries = entriesOf(cache, vms).map((entry) => ({
      ...entry,
      label: labels.get(entry.name) ?? "no group's",
      ...this.numbers.look(entry),
    }));
    const way = cache.way_bytes;
    setText(this.title, `${visible(cache.resource)} cache ${cache.id}`);
    const total = way ? ` × ${size(way)} = ${size(way * cache.ways)}` : "";
    setText(this.facts, `${count(cache.ways, "way")}${total}, CPUs ${visible(cache.cpus) || "none"}`);
    const run = cache.free_ways === cache.largest_free_run ? "" : `, ${cache.largest_free_run} side by side`;
    setText(this.room, `${cache.free_ways ? count(cache.free_ways, "way") : "no way"} left to promise${run}`);
    setAttribute(this.room, "data-level", cache.free_ways ? "ok" : "pending");
    // Drawn anew only when something has changed: nothing in the picture has focus.
    const now = JSON.stringify([cache, entries]);
    if (now !== this.drawn) {
      this.drawn = now;
      this.#draw(cache, entries);
    }
    this.#explain(cache, entries);
    const broken = overlaps(entries).map(
      ({ entry, other, ways }) => `${entry.label} is not alone: ${other.label} may fill ${count(ways.length, "way")} of it, too`,
    );
    keyed(this.warnings, broken, { key: (text) => text, create: (text) => make("li", {}, text), update: () => {} });
  }

  #draw(cache, entries) {
    const io = new Set(waysOf(cache.shareable_bits));
    const axis = make("div", { class: "lane axis" });
    for (let number = cache.ways - 1; number >= 0; number -= 1) {
      axis.append(make("span", io.has(number) ? { class: "io" } : {}, String(number)));
    }
    const rows = lanes(entries.filter((entry) => entry.ways.length)).map((lane) => {
      const row = make("div", { class: "lane" });
      for (let column = 1; column <= cache.ways; column += 1) place(make("i"), column, 1, row);
      for (const entry of lane) {
        for (const [highest, wide] of pieces(entry.ways)) place(piece(entry, wide), cache.ways - highest, wide, row);
      }
      return row;
    });
    this.picture.replaceChildren(axis, ...rows);
    for (const row of this.picture.children) row.style.setProperty("--ways", cache.ways);
  }

  #explain(cache, entries) {
    const items = [...entries];
    const io = waysOf(cache.shareable_bits);
    if (io.length) {
      items.push({ name: "~", owner: "io", symbol: "~", style: "io", label: "filled by I/O devices, too", ways: io });
    }
    keyed(this.key, items, {
      key: (entry) => entry.name || "=",
      create: (entry) => this.#line(entry),
      update: (line, entry) => this.#updateLine(line, entry, cache),
      otherwise: document.getElementById("ways-title"),
    });
  }

  #line(entry) {
    const chip = make("span", { class: "chip" });
    const name = make("bdi");
    const label = entry.vm ? make("button", { type: "button", class: "link" }, name) : make("span", {}, name);
    if (entry.vm) label.addEventListener("click", () => this.open(entry.vm));
    return make("li", { "data-group": entry.name }, chip, " ", label, " ", make("span", { class: "dim" }));
  }

  #updateLine(line, entry, cache) {
    const [chip, label, facts] = line.children;
    setAttribute(chip, "class", `chip ${entry.style}`);
    setText(chip, entry.symbol);
    setText(label.firstChild, entry.label);
    const bytes = cache.way_bytes ? `, ${size(cache.way_bytes * entry.ways.length)}` : "";
    setText(facts, `${count(entry.ways.length, "way")}${bytes}${entry.mask ? `, mask ${visible(entry.mask)}` : ""}`);
  }
}

function place(element, column, wide, row) {
  element.style.gridColumn = `${column} / span ${wide}`;
  element.style.gridRow = "1";
  row.append(element);
}

function piece(entry, wide) {
  const element = make("b", { class: `piece ${entry.style}`, "data-group": entry.name }, make("span", {}, entry.symbol));
  if (wide > 2 || entry.owner === "default") element.append(make("bdi", {}, entry.label));
  if (entry.vm) element.dataset.vm = entry.vm;
  element.title = `${entry.label}: ${count(entry.ways.length, "way")}`;
  return element;
}

/** Mark, everywhere on the page, the group that the pointer is on. */
export function markGroups(root) {
  root.addEventListener("pointerover", (event) => {
    const group = event.target.closest("[data-group]")?.dataset.group;
    for (const element of root.querySelectorAll("[data-group]")) {
      element.classList.toggle("lit", Boolean(group) && element.dataset.group === group);
    }
  });
}
