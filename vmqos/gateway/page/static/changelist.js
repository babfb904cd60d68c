// SPDX-License-Identifier: Apache-2.0
// The list of the last changes, each with its time and its VM.

import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { clock, count, iso, visible } from "./format.js";
import { heapsOf } from "./events.js";
import { nameOf } from "./names.js";

/** Lines that are shown at first, and at most. */
const FIRST = 5;
const MOST = 200;

/** How a VM's state beside its neighbours is coloured. */
const NEIGHBOUR_LEVELS = { slowed: "pending", undisturbed: "ok" };

/** What happened, in words: `{ who, uuid, level, state, text }`. `known` has the running VMs by UUID. Pure. */
export function lineOf([event, ...others], known) {
  const { kind, before, state } = event;
  const vm = known.get(event.uuid);
  const line = { uuid: vm ? vm.uuid : "", level: state, state: visible(state), text: visible(event.reason) };
  if (others.length) return { ...line, uuid: "", who: count(others.length + 1, "VM"), was: "came", text: "" };
  const who = vm ? nameOf(vm) : visible(event.name);
  if (kind === "ended") return { ...line, who, was: `was ${visible(before)}`, level: "none", state: "ended" };
  if (kind === "host") return { ...line, who, was: "", level: state === "works" ? "ok" : "failing" };
  if (kind === "neighbour") return { ...line, who, was: "", level: NEIGHBOUR_LEVELS[state] ?? "none" };
  return { ...line, who, was: before === "" ? "came" : before === state ? "still" : `${visible(before)} \u2192` };
}

/** The same of one event in a few words, such as "kept → degraded: 1 of 9 tasks is elsewhere". Pure. */
export function happened(event) {
  const { was, state, text } = lineOf([event], new Map());
  return `${was} ${state}${text && `: ${text}`}`.trim();
}

export class ChangeList {
  /**
   * @param list has a line for each change; `more` shows all of them; `none` says that there is none.
   * @param open called with the UUID of the VM that a user chose.
   */
  constructor({ section, list, more, none }, open) {
    this.section = section;
    this.list = list;
    this.more = more;
    this.none = none;
    this.open = open;
    this.all = false;
    this.events = [];
    this.vms = [];
    more.addEventListener("click", () => {
      this.all = !this.all;
      this.#show();
    });
  }

  /** Show what is known; `told` is whether the agent tells events at all: an older one does not. */
  update(events, vms, told) {
    show(this.section, told);
    this.events = events;
    this.vms = vms;
    this.#show();
  }

  #show() {
    const heaps = heapsOf(this.events).slice(0, MOST);
    const known = new Map(this.vms.map((vm) => [vm.uuid, vm]));
    keyed(this.list, this.all ? heaps : heaps.slice(0, FIRST), {
      key: ([first]) => first.key,
      create: () => this.#line(),
      update: (line, heap) => this.#update(line, heap, known),
      otherwise: document.getElementById("changes-title"),
    });
    show(this.none, !heaps.length);
    show(this.more, heaps.length > FIRST);
    setText(this.more, this.all ? `Only the last ${FIRST}` : `All ${heaps.length}`);
    setAttribute(this.more, "aria-expanded", String(this.all));
  }

  #line() {
    const name = make("button", { type: "button", class: "link" }, make("bdi"));
    const line = make(
      "li",
      {},
      make("time", { class: "dim" }),
      name,
      make("strong", {}, make("bdi")),
      make("span", { class: "what" }, make("span", { class: "dim" }), " ", make("span", { class: "badge" })),
      make("span", { class: "why" }, make("bdi")),
    );
    name.addEventListener("click", () => this.open(line.dataset.vm));
    return line;
  }

  #update(line, heap, known) {
    const { who, uuid, level, state, was, text } = lineOf(heap, known);
    const [time, name, plain, what, why] = line.children;
    setText(time, clock(heap[0].time));
    setAttribute(time, "datetime", iso(heap[0].time));
    setAttribute(line, "data-vm", uuid || null);
    setAttribute(line, "data-group", known.get(uuid)?.group || null);
    for (const element of [name, plain]) setText(element.firstChild, who);
    show(name, Boolean(uuid));
    show(plain, !uuid);
    setText(what.firstChild, was);
    setText(what.lastChild, state);
    setAttribute(what.lastChild, "data-level", level);
    setText(why.firstChild, text);
  }
}
