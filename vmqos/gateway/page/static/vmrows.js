// SPDX-License-Identifier: Apache-2.0
// One VM in the table: its row, and the row of details below it.

import { Details } from "./details.js";
import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { events, lack, lastMeasured, limitOf, power, rate, ratio, size, visible, waysByCache, word } from "./format.js";
import { fullest, fullness, percent, share } from "./fullness.js";
import { baseOf, nameOf } from "./names.js";
import { packagesOf } from "./packages.js";
import { Sparkline } from "./spark.js";

const GLYPHS = { kept: "\u25cf", pending: "\u25d4", degraded: "\u25b2", none: "\u25cb" };

export class VmRows {
  /**
   * @param folded called with whether the VM is unfolded now, when the user folded or unfolded it.
   * @param choose called with the time that the user wants charts to show.
   */
  constructor(uuid, folded, choose) {
    this.glyph = make("span", { class: "glyph", "aria-hidden": "true" });
    this.chip = make("span", { class: "chip", "aria-hidden": "true" });
    this.name = make("bdi");
    this.tag = make("span", { class: "tag" });
    this.button = make("button", { type: "button", class: "name", "aria-expanded": "false" }, this.name, this.tag);
    this.badge = make("span", { class: "badge" });
    this.ways = make("span");
    this.policy = make("span", { class: "dim small" });
    this.further = make("div", { class: "dim small" });
    this.occupancy = new Measure(true);
    this.total = new Measure(false);
    this.local = make("td", { class: "number extra" });
    this.remote = make("td", { class: "number extra" });
    this.perCycle = make("td", { class: "number counted" });
    this.misses = make("td", { class: "number counted" });
    this.power = make("td", { class: "number powered" });
    this.flavor = make("bdi");
    const row = make(
      "tr",
      {},
      make("th", { scope: "row" }, make("span", { class: "who" }, this.glyph, this.button, this.chip)),
      make("td", {}, this.badge),
      make("td", { class: "number" }, this.ways, " ", this.policy, this.further),
      make("td", {}, this.occupancy.element),
      make("td", {}, this.total.element),
      this.local,
      this.remote,
      this.perCycle,
      this.misses,
      this.power,
      make("td", { class: "extra flavor" }, this.flavor),
    );
    this.place = make("td");
    this.below = make("tr", { class: "details", id: `details-${uuid}`, hidden: "" }, this.place);
    this.button.setAttribute("aria-controls", this.below.id);
    this.button.addEventListener("click", () => {
      this.fold(!this.below.hidden);
      folded(!this.below.hidden);
    });
    this.element = make("tbody", { "data-uuid": uuid }, row, this.below);
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.below.hidden) return;
      this.fold(true);
      this.button.focus();
      folded(false);
    });
    this.choose = choose;
    this.details = null;
    this.known = null;
  }

  /** Show what is known of the VM now. */
  update(vm, known, numbers) {
    this.known = { vm, ...known };
    const { reading, tops, history, counted } = known;
    setAttribute(this.element, "data-level", vm.state);
    setAttribute(this.element, "data-group", vm.group || null);
    setText(this.glyph, GLYPHS[vm.state] ?? "?");
    this.#mark(vm, numbers);
    setText(this.name, baseOf(vm));
    setText(this.tag, vm.tag ? ` (${vm.tag})` : "");
    setAttribute(this.button, "title", nameOf(vm));
    setText(this.badge, visible(vm.state));
    setAttribute(this.badge, "data-level", vm.state);
    setText(this.ways, granted(vm));
    setText(this.policy, vm.policy === "shared" ? "shared" : "");
    setText(this.further, further(vm));
    const absent = counted ? "not-monitored" : "unavailable";
    const missing = (reason) => ({ reason: reading ? reason : absent, told: lack(vm, reading, counted, reason) });
    this.occupancy.update(history, history.values(vm.uuid, "llc_occupancy"), tops.occupancy, {
      value: reading?.totals.llc_occupancy ?? null,
      ...missing(reading?.missing?.llc_occupancy ?? "no-counter"),
      limit: reading?.allocated_bytes ?? null,
      caches: fullness(reading, counted),
    });
    this.total.update(history, history.values(vm.uuid, "total"), tops.bandwidth, {
      value: reading?.rates?.total ?? null,
      ...missing(reading?.rates_missing?.total ?? "no-previous"),
      limit: null,
      note: lastMeasured(reading) || (limitOf(vm) ? `at most ${limitOf(vm)}` : ""),
    });
    numeric(this.local, reading?.rates?.local ?? null, rate);
    numeric(this.remote, reading?.rates?.remote ?? null, rate);
    const { values, reason } = known.executed.of(vm.uuid);
    numeric(this.perCycle, values?.instructions_per_cycle ?? null, ratio, reason);
    numeric(this.misses, values?.cache_misses ?? null, events, reason);
    numeric(this.power, packagesOf(reading)?.core_watts ?? null, power);
    setText(this.flavor, visible(vm.flavor));
    setAttribute(this.flavor, "title", visible(vm.flavor) || null);
    this.refresh();
  }

  /** Show details anew, if they are shown, with the time that charts show now. */
  refresh(charts = this.known?.charts) {
    if (this.known) this.known.charts = charts;
    if (!this.below.hidden && this.known) this.details.update(this.known);
  }

  /** Have the details go over so many columns: those that are shown, or the browser makes more, and room for them. */
  span(columns) {
    setAttribute(this.place, "colspan", columns);
  }

  /** Hide the details, or show them. */
  fold(hidden) {
    if (!hidden && !this.details) {
      this.details = new Details(this.choose);
      this.place.append(this.details.element);
    }
    show(this.below, !hidden);
    setAttribute(this.button, "aria-expanded", String(!hidden));
    this.refresh();
  }

  /** Put the focus on the VM's name, and have the VM be seen. */
  go() {
    this.button.focus({ preventScroll: true });
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.element.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
  }

  #mark(vm, numbers) {
    const owner = vm.group.startsWith("vmqos.shared-") ? "class" : vm.group ? "vm" : null;
    const look = owner ? numbers.look({ name: vm.group, owner }) : null;
    show(this.chip, look !== null && look.symbol !== "-");
    if (look) {
      setText(this.chip, look.symbol);
      setAttribute(this.chip, "class", `chip ${look.style}`);
    }
  }
}

/** A number with a line of its last ten minutes; the occupancy's also with what was promised, cache by cache. */
class Measure {
  constructor(limited) {
    this.limited = limited;
    this.spark = new Sparkline();
    this.text = make("span", { class: "value" });
    this.limit = make("span", { class: "dim small limit-text" });
    this.note = make("span", { class: "dim small under" });
    this.meters = make("span", { class: "meters", "aria-hidden": "true" });
    this.element = make("div", { class: limited ? "measure limited" : "measure" }, this.spark.element);
    this.element.append(make("span", { class: "figures" }, this.text, " ", this.limit, this.meters, this.note));
  }

  update(history, values, top, { value, reason, told, limit, note = "", caches = [] }) {
    this.spark.draw(history, values, top, limit);
    setText(this.text, value === null ? word(reason) : (this.limited ? size : rate)(value));
    setAttribute(this.text, "class", value === null ? "dim" : "value");
    setAttribute(this.text, "title", value === null ? told : null);
    setText(this.limit, limit === null || value === null ? "" : `of ${size(limit)}`);
    const most = fullest(caches);
    const where = caches.length > 1 ? `cache ${most.cache}: ` : "";
    setText(this.note, most ? `${where}${percent(most)}` : note);
    setAttribute(this.note, "title", most ? `its ways ${where && `on cache ${most.cache} `}are ${percent(most)} full` : null);
    keyed(this.meters, caches, {
      key: ({ cache }) => cache,
      create: () => make("span", { class: "meter" }, make("span")),
      update: (meter, one) => {
        meter.firstChild.style.inlineSize = `${Math.min(100, 100 * share(one)).toFixed(1)}%`;
        setAttribute(meter, "title", `cache ${one.cache}: ${size(one.held)} of ${size(one.granted)}`);
      },
    });
  }
}

/** How many ways a VM has, and how many it asked for where it has not all. */
function granted(vm) {
  const has = waysByCache(vm.masks);
  if (vm.ways_requested === null || has === String(vm.ways_requested)) return has || "\u2013";
  return `${has || 0} of ${vm.ways_requested}`;
}

/** What it has beside L3 ways as such, as far as it has or asks for some. */
function further(vm) {
  const parts = [];
  const { code_masks: code = {}, data_masks: data = {} } = vm;
  if (waysByCache(code)) parts.push(`code ${waysByCache(code)}, data ${waysByCache(data)}`);
  const l2 = waysByCache(vm.l2_masks ?? {});
  const wanted = vm.l2_ways_requested ?? null;
  if (l2 || wanted) parts.push(`L2: ${l2 || 0}${wanted === null || l2 === String(wanted) ? "" : ` of ${wanted}`}`);
  return parts.join("; ");
}

function numeric(cell, value, format, reason = "") {
  setText(cell, value === null ? "\u2013" : format(value));
  setAttribute(cell, "title", reason || null);
}
