// SPDX-License-Identifier: Apache-2.0
// The table of the VMs.

import { FIRST } from "./address.js";
import { keyed, setAttribute, setText, show } from "./dom.js";
import { count, visible } from "./format.js";
import { KEYS, found, held, sorted } from "./order.js";
import { packagesOf } from "./packages.js";
import { VmRows } from "./vmrows.js";

const rows = new WeakMap();

export class VmTable {
  /**
   * @param none says that there is no VM to list; `away`, which of the unfolded VMs are not on this host.
   * @param numbers the groups' symbols.
   * @param changed called when the user changed the view (address.js), with whether that is a step to go back.
   */
  constructor(table, { none, away, number, find }, numbers, changed) {
    this.table = table;
    this.none = none;
    this.away = away;
    this.number = number;
    this.find = find;
    this.numbers = numbers;
    this.changed = changed;
    this.sort = { key: FIRST.key, descending: FIRST.descending };
    this.unfolded = new Set();
    this.charts = FIRST.charts;
    this.order = [];
    this.state = null;
    table.tHead.addEventListener("click", (event) => {
      const heading = event.target.closest("th[data-sort]");
      if (heading) this.#sortBy(heading.dataset.sort);
    });
    find.addEventListener("input", () => {
      this.#show();
      this.#tell(false);
    });
    away.querySelector("button").addEventListener("click", () => {
      for (const uuid of this.#absent()) this.unfolded.delete(uuid);
      this.#tellAway();
      this.#tell(false);
      document.getElementById("vms-title").focus({ preventScroll: true });
    });
    addEventListener("resize", () => this.#span());
    this.#tellOrder();
  }

  /** Show what is known now. */
  update(state) {
    this.state = state;
    this.#show();
  }

  /** What is looked for, the order, which VMs are unfolded, and what their charts show: see address.js. */
  get view() {
    return { find: this.find.value, ...this.sort, unfolded: [...this.unfolded], charts: this.charts };
  }

  /** Show a view, and of the VMs that it unfolds the last one. */
  set view({ find, key, descending, unfolded, charts }) {
    const news = unfolded.filter((uuid) => !this.unfolded.has(uuid));
    this.find.value = find;
    this.sort = { key, descending };
    this.unfolded = new Set(unfolded);
    this.charts = charts;
    this.#tellOrder();
    for (const body of this.table.tBodies) rows.get(body).fold(!this.unfolded.has(body.dataset.uuid));
    this.#show(true);
    const last = rows.get(this.#body(news.at(-1)));
    if (last) last.go();
  }

  /** The VMs whose charts show the day. */
  get daily() {
    if (this.charts !== "day") return [];
    return [...this.table.tBodies].map((body) => body.dataset.uuid).filter((uuid) => this.unfolded.has(uuid));
  }

  /** Show the charts anew. */
  redraw() {
    for (const body of this.table.tBodies) rows.get(body).refresh(this.charts);
  }

  /** Sort by a key, from its top, and go to the list. */
  sortBy(key) {
    this.view = { ...this.view, key, descending: Boolean(KEYS[key].descending) };
    this.#tell(true);
    const title = document.getElementById("vms-title");
    title.focus({ preventScroll: true });
    title.scrollIntoView({ block: "start" });
  }

  /** Unfold a VM's details and go there. */
  open(uuid) {
    if (!rows.has(this.#body(uuid))) {
      this.find.value = "";
      this.#show();
    }
    const found = rows.get(this.#body(uuid));
    if (!found) return;
    found.fold(false);
    this.#remember(uuid, true);
    found.go();
  }

  #remember(uuid, unfolded) {
    // The one that was unfolded last is the last one.
    this.unfolded.delete(uuid);
    if (unfolded) this.unfolded.add(uuid);
    this.#tellAway();
    this.#tell(true);
  }

  #choose(charts) {
    if (this.charts === charts) return;
    this.charts = charts;
    this.redraw();
    this.#tell(true);
  }

  #tell(step) {
    this.changed(step);
  }

  #body(uuid) {
    return [...this.table.tBodies].find((body) => body.dataset.uuid === uuid);
  }

  #sortBy(key) {
    const again = this.sort.key === key;
    this.sort = { key, descending: again ? !this.sort.descending : Boolean(KEYS[key].descending) };
    this.#tellOrder();
    this.#show(true);
    this.#tell(true);
  }

  /** The VMs that are unfolded and not here: a link is kept when its VM has ended, or has moved to another host. */
  #absent() {
    const here = new Set(this.state.vms.map((vm) => vm.uuid));
    return [...this.unfolded].filter((uuid) => !here.has(uuid));
  }

  #tellAway() {
    const absent = this.#absent();
    const [noun, verb] = absent.length > 1 ? ["VMs", "do"] : ["VM", "does"];
    setText(this.away.firstChild, `${noun} ${absent.map(visible).join(", ")} ${verb} not run on this host, or no more.`);
    show(this.away, absent.length > 0);
  }

  #tellOrder() {
    for (const heading of this.table.tHead.querySelectorAll("th[data-sort]")) {
      const active = heading.dataset.sort === this.sort.key;
      setAttribute(heading, "aria-sort", active ? (this.sort.descending ? "descending" : "ascending") : null);
    }
  }

  #show(anew = false) {
    if (!this.state) return;
    const { vms, readings, history, health, executed } = this.state;
    const values = executed.values;
    const listed = found(vms, this.find.value);
    // Under a hand or a focus rows stay where they are.
    const still = !anew && this.table.querySelector("tbody:hover, tbody:focus-within") !== null;
    const ordered = still ? held(listed, this.order) : sorted(listed, readings, values, this.sort);
    this.order = ordered.map((vm) => vm.uuid);
    const tops = {
      occupancy: Math.max(history.greatest("llc_occupancy"), ...vms.map((vm) => readings[vm.uuid]?.allocated_bytes ?? 0)),
      bandwidth: history.greatest("total"),
    };
    keyed(this.table, ordered, {
      key: (vm) => vm.uuid,
      create: (vm) => {
        const made = new VmRows(vm.uuid, (unfolded) => this.#remember(vm.uuid, unfolded), (charts) => this.#choose(charts));
        rows.set(made.element, made);
        made.fold(!this.unfolded.has(vm.uuid));
        return made.element;
      },
      update: (body, vm) => {
        const [reading, events] = [readings[vm.uuid], this.state.events.filter((event) => event.uuid === vm.uuid)];
        rows.get(body).update(vm, { ...this.state, reading, tops, events, charts: this.charts }, this.numbers);
      },
      otherwise: document.getElementById("vms-title"),
    });
    setText(this.number, listed.length === vms.length ? String(vms.length) : `${listed.length} of ${vms.length}`);
    const unheard = health && (health.status === "starting" || !health.libvirt.connected);
    const unserved = Object.keys(health?.unserved ?? {}).length > 0;
    const none = unheard ? "libvirt does not say which VMs run." : unserved ? "No VM is known." : "No VM runs on this host.";
    setText(this.none, vms.length ? "No VM fits what you look for." : none);
    show(this.none, !listed.length);
    this.#tellAway();
    setAttribute(this.table, "data-counted", values.size ? "" : null);
    setAttribute(this.table, "data-powered", vms.some((vm) => packagesOf(readings[vm.uuid])) ? "" : null);
    show(this.table, listed.length > 0);
    setAttribute(this.table, "aria-label", count(listed.length, "VM"));
    this.#span();
  }

  /** Narrow screens show fewer columns. */
  #span() {
    const shown = [...this.table.tHead.rows[0].cells].filter((cell) => cell.getClientRects().length).length;
    for (const body of this.table.tBodies) rows.get(body)?.span(Math.max(1, shown));
  }
}
