// SPDX-License-Identifier: Apache-2.0
// The table of the VMs.

import { keyed, setAttribute, setText, show } from "./dom.js";
import { count } from "./format.js";
import { KEYS, found, held, sorted } from "./order.js";
import { VmRows } from "./vmrows.js";

const rows = new WeakMap();

export class VmTable {
  constructor(table, { none, number, find }, numbers) {
    this.table = table;
    this.none = none;
    this.number = number;
    this.find = find;
    this.numbers = numbers;
    this.sort = { key: "state", descending: false };
    this.order = [];
    this.state = null;
    table.tHead.addEventListener("click", (event) => {
      const heading = event.target.closest("th[data-sort]");
      if (heading) this.#sortBy(heading.dataset.sort);
    });
    find.addEventListener("input", () => this.#show());
    addEventListener("resize", () => this.#span());
    this.#tellOrder();
  }

  /** Show what is known now. */
  update(state) {
    this.state = state;
    this.#show();
  }

  /** Unfold a VM's details and go there. */
  open(uuid) {
    if (!rows.has(this.#body(uuid))) {
      this.find.value = "";
      this.#show();
    }
    rows.get(this.#body(uuid))?.open();
  }

  #body(uuid) {
    return [...this.table.tBodies].find((body) => body.dataset.uuid === uuid);
  }

  #sortBy(key) {
    const again = this.sort.key === key;
    this.sort = { key, descending: again ? !this.sort.descending : Boolean(KEYS[key].descending) };
    this.#tellOrder();
    this.#show(true);
  }

  #tellOrder() {
    for (const heading of this.table.tHead.querySelectorAll("th[data-sort]")) {
      const active = heading.dataset.sort === this.sort.key;
      setAttribute(heading, "aria-sort", active ? (this.sort.descending ? "descending" : "ascending") : null);
    }
  }

  #show(anew = false) {
    if (!this.state) return;
    const { vms, readings, history, health } = this.state;
    const listed = found(vms, this.find.value);
    // Under a hand or a focus rows stay where they are.
    const still = !anew && this.table.querySelector("tbody:hover, tbody:focus-within") !== null;
    const ordered = still ? held(listed, this.order) : sorted(listed, readings, this.sort);
    this.order = ordered.map((vm) => vm.uuid);
    const tops = {
      occupancy: Math.max(history.greatest("llc_occupancy"), ...vms.map((vm) => readings[vm.uuid]?.allocated_bytes ?? 0)),
      bandwidth: history.greatest("total"),
    };
    keyed(this.table, ordered, {
      key: (vm) => vm.uuid,
      create: (vm) => {
        const made = new VmRows(vm.uuid);
        rows.set(made.element, made);
        return made.element;
      },
      update: (body, vm) => rows.get(body).update(vm, { ...this.state, reading: readings[vm.uuid], tops }, this.numbers),
      otherwise: document.getElementById("vms-title"),
    });
    setText(this.number, listed.length === vms.length ? String(vms.length) : `${listed.length} of ${vms.length}`);
    const unheard = health && (health.status === "starting" || !health.libvirt.connected);
    const none = unheard ? "libvirt does not say which VMs run." : "No VM runs on this host.";
    setText(this.none, vms.length ? "No VM fits what you look for." : none);
    show(this.none, !listed.length);
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
