// SPDX-License-Identifier: Apache-2.0
// The map of each cache's ways: who may fill which.

import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { count, listOf, numbersIn, size, visible, waysOf } from "./format.js";
import { fullest, fullnessOfGroups, percent, share } from "./fullness.js";
import { entriesOf, heaps, labelsOf, lanes, levelsToFold, overlaps, partsOf, pieces, strangersOf } from "./lanes.js";

export class WayMap {
  /**
   * @param root holds one figure a cache, or for several that look the same.
   * @param none says that there is nothing to draw.
   * @param levels gets a button for each level that has equal caches.
   * @param numbers the groups' symbols.
   * @param open called with the UUID of the VM that a user chose.
   * @param changed called when the user has unfolded equal caches, or folded them.
   */
  constructor({ root, none, levels }, numbers, open, changed) {
    this.root = root;
    this.none = none;
    this.levels = levels;
    this.numbers = numbers;
    this.open = open;
    this.changed = changed;
    this.unfolded = new Set();
    this.state = null;
  }

  /** The levels whose equal caches are drawn one by one: see address.js. */
  get view() {
    return { apart: [...this.unfolded] };
  }

  set view({ apart }) {
    this.unfolded = new Set(apart);
    if (this.state) this.update(...this.state);
  }

  /** @param counted the VMs' and the host's counters, `{ readings, host }`. */
  update(caches, vms, problem, { readings, host }) {
    this.state = [caches, vms, problem, { readings, host }];
    setText(this.none, problem ?? "This host has no cache that can be partitioned.");
    show(this.none, !caches.length);
    const labels = labelsOf(caches, vms);
    this.numbers.update(caches.flatMap((cache) => cache.groups), vms);
    const seen = new Map(caches.map((cache) => [cache, contentOf(cache, vms, labels)]));
    const texts = new Map([...seen].map(([cache, content]) => [cache, JSON.stringify(content)]));
    const content = (cache) => texts.get(cache);
    this.#offer(levelsToFold(caches, content));
    keyed(this.root, heaps(caches, content, this.unfolded), {
      key: ([first]) => `${first.resource} ${first.id}`,
      create: () => new CacheFigure(this.numbers, this.open).element,
      update: (figure, heap) => {
        const full = heap.map((cache) => fullnessOfGroups(cache, readings, host));
        figures.get(figure).update(heap, seen.get(heap[0]), full);
      },
      otherwise: document.getElementById("ways-title"),
    });
  }

  /** Have a button for each of these levels, to unfold its equal caches and to fold them. */
  #offer(levels) {
    keyed(this.levels, levels, {
      key: (level) => level,
      create: (level) => {
        const button = make("button", { type: "button", class: "link more", "aria-controls": this.root.id });
        button.addEventListener("click", () => this.#turn(level));
        return button;
      },
      update: (button, level) => {
        const apart = this.unfolded.has(level);
        setText(button, apart ? `Equal ${visible(level)} caches once` : `Each ${visible(level)} cache`);
        setAttribute(button, "aria-expanded", String(apart));
      },
      otherwise: document.getElementById("ways-title"),
    });
  }

  #turn(level) {
    if (!this.unfolded.delete(level)) this.unfolded.add(level);
    this.update(...this.state);
    this.changed();
  }
}

const figures = new WeakMap();

/** What the picture of a cache shows, but for which cache it is. */
function contentOf(cache, vms, labels) {
  const { ways, way_bytes, shareable_bits, free_ways, largest_free_run } = cache;
  const limit = (group) =>
    (group.bandwidth ?? null) === null ? "" : `at most ${group.bandwidth} ${visible(cache.bandwidth_unit ?? "")}`;
  const entries = entriesOf(cache, vms).map((entry) => ({
    ...entry,
    label: labels.get(entry.name) ?? "no group's",
    limit: limit(entry),
  }));
  const inside = strangersOf(cache, vms)
    .filter((group) => cache.resource === "L3" && !group.elsewhere)
    .map((group) => labels.get(group.name) + (limit(group) ? ` (${limit(group)})` : ""));
  return { ways, way_bytes, shareable_bits, free_ways, largest_free_run, entries, inside };
}

class CacheFigure {
  constructor(numbers, open) {
    this.numbers = numbers;
    this.open = open;
    this.title = make("h3");
    this.facts = make("p", { class: "dim" });
    this.room = make("p", { class: "room" });
    this.picture = make("div", { class: "picture", "aria-hidden": "true" });
    this.warnings = make("ul", { class: "warnings" });
    this.inside = make("p", { class: "dim inside" });
    this.key = make("ul", { class: "key" });
    this.element = make(
      "article",
      { class: "cache" },
      make("header", {}, this.title, this.facts, this.room),
      this.picture,
      this.warnings,
      this.key,
      this.inside,
    );
    this.picture.addEventListener("click", (event) => {
      const uuid = event.target.closest("[data-vm]")?.dataset.vm;
      if (uuid) open(uuid);
    });
    this.drawn = "";
    figures.set(this.element, this);
  }

  /** @param full for each of the caches, how full the groups' ways are. */
  update(caches, content, full) {
    const [{ resource }] = caches;
    const each = caches.length > 1 ? " each" : "";
    const whole = content.entries.map((entry) => ({ ...entry, ...this.numbers.look(entry) }));
    const entries = whole.flatMap(partsOf).map((entry) => (entry.part ? named(entry) : entry));
    const { way_bytes: way, free_ways: free, largest_free_run: longest } = content;
    const ids = listOf(caches.map((cache) => cache.id)).replaceAll(",", ", ");
    setText(this.title, `${visible(resource)} cache${each && "s"} ${ids}`);
    const total = way ? ` × ${size(way)} = ${size(way * content.ways)}` : "";
    const cpus = each ? listOf(caches.flatMap((cache) => numbersIn(cache.cpus))) : visible(caches[0].cpus);
    setText(this.facts, `${count(content.ways, "way")}${total}${each}, CPUs ${cpus || "none"}`);
    const run = free === longest ? "" : `, ${longest} side by side`;
    setText(this.room, `${free ? count(free, "way") : "no way"} left to promise${run}${each && " in each"}`);
    setAttribute(this.room, "data-level", free ? "ok" : "pending");
    // Drawn anew only when something has changed: nothing in the picture has focus.
    const now = JSON.stringify([content, entries]);
    if (now !== this.drawn) {
      this.drawn = now;
      this.#draw(content, entries);
    }
    this.#fill(full);
    this.#explain(content, entries, full);
    const broken = overlaps(whole).map(
      ({ entry, other, ways }) => `${entry.label} is not alone: ${other.label} may fill ${count(ways.length, "way")} of it, too`,
    );
    keyed(this.warnings, broken, { key: (text) => text, create: (text) => make("li", {}, text), update: () => {} });
    setText(this.inside, content.inside.length ? `In the default group's ways: ${content.inside.join(", ")}` : "");
    show(this.inside, content.inside.length > 0);
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

  /** Fill each group's blocks as far as its ways are full; of caches that are drawn once, as far as on the fullest. */
  #fill(full) {
    for (const block of this.picture.querySelectorAll(".piece")) {
      const one = mostOf(full, block.dataset.group);
      const fill = block.lastChild.lastChild;
      fill.style.inlineSize = one ? `${Math.min(100, 100 * share(one)).toFixed(1)}%` : "";
      fill.classList.toggle("unknown", !one && full.some((groups) => groups.size));
      setAttribute(block, "title", one ? `${block.dataset.told}, ${toldOf(one, full)}` : block.dataset.told);
    }
  }

  #explain(cache, entries, full) {
    const items = [...entries];
    const io = waysOf(cache.shareable_bits);
    if (io.length) {
      items.push({ name: "~", owner: "io", symbol: "~", style: "io", label: "filled by I/O devices, too", ways: io });
    }
    keyed(this.key, items, {
      key: (entry) => `${entry.name || "="} ${entry.part ?? ""}`,
      create: (entry) => this.#line(entry),
      update: (line, entry) => this.#updateLine(line, entry, cache, full),
      otherwise: document.getElementById("ways-title"),
    });
  }

  #line(entry) {
    const chip = make("span", { class: "chip" });
    const name = make("bdi");
    const label = entry.vm ? make("button", { type: "button", class: "link" }, name) : make("span", {}, name);
    if (entry.vm) label.addEventListener("click", () => this.open(entry.vm));
    const facts = make("span", { class: "dim" });
    return make("li", { "data-group": entry.name }, chip, " ", label, " ", facts, " ", make("span", { class: "full" }));
  }

  #updateLine(line, entry, cache, full) {
    const [chip, label, facts, fullness] = line.children;
    setAttribute(chip, "class", `chip ${entry.style}`);
    setText(chip, entry.symbol);
    setText(label.firstChild, entry.label);
    setAttribute(label, "title", entry.label);
    const bytes = cache.way_bytes ? `, ${size(cache.way_bytes * entry.ways.length)}` : "";
    const mask = entry.mask ? `, mask ${visible(entry.mask)}` : "";
    setText(facts, `${count(entry.ways.length, "way")}${bytes}${mask}${entry.limit ? `, ${entry.limit}` : ""}`);
    // The counters do not part code from data.
    const one = entry.part || entry.owner === "io" ? undefined : mostOf(full, entry.name);
    setText(fullness, one ? toldOf(one, full) : "");
  }
}

/** How full a group's ways are on the cache where they are fullest. */
function mostOf(full, group) {
  return fullest(full.map((groups) => groups.get(group)).filter(Boolean));
}

function toldOf(one, full) {
  return `${percent(one)} full${full.length > 1 ? ` on cache ${one.cache}` : ""}`;
}

/** An entry for code or for data, which is marked beside its colour, so that it is told from the other one. */
function named(entry) {
  return { ...entry, label: `${entry.label}, ${entry.part}`, style: `${entry.style} ${entry.part}` };
}

function place(element, column, wide, row) {
  element.style.gridColumn = `${column} / span ${wide}`;
  element.style.gridRow = "1";
  row.append(element);
}

function piece(entry, wide) {
  const label = make("span", { class: "label" }, make("span", {}, entry.symbol));
  if (wide > 2 || entry.owner === "default") label.append(make("bdi", {}, entry.label));
  else if (entry.part && wide > 1) label.append(entry.part);
  const tank = make("i", { class: "tank" }, make("i", { class: entry.style }), make("i", { class: `fill ${entry.style}` }));
  const block = make("b", { class: "piece", "data-group": entry.name }, label, tank);
  if (entry.vm) block.dataset.vm = entry.vm;
  block.dataset.told = `${entry.label}: ${count(entry.ways.length, "way")}`;
  return block;
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
