// SPDX-License-Identifier: Apache-2.0
// What needs somebody's attention: what the agent lacks, and VMs that do not have what they were promised.

import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { count, duration, moment, visible } from "./format.js";
import { nameOf } from "./names.js";

/** What a VM's flavor asks for. */
export function asked(vm) {
  const { code_ways_requested: code, data_ways_requested: data } = vm;
  const parts = [];
  if (code && data) parts.push(`${count(code, "way")} for code and ${data} for data`);
  else if (vm.ways_requested !== null) parts.push(count(vm.ways_requested, "way"));
  if (vm.l2_ways_requested) parts.push(`${count(vm.l2_ways_requested, "L2 way")}`);
  if (vm.policy && parts.length) parts.push(visible(vm.policy));
  if (vm.bandwidth_requested) {
    const unit = visible(vm.bandwidth_requested_unit ?? "");
    parts.push(`at most ${vm.bandwidth_requested} ${unit} of memory bandwidth`);
  }
  if (vm.vcpus_requested) parts.push(`for vCPUs ${visible(vm.vcpus_requested)} alone`);
  return parts.join(", ") || "nothing";
}

/** Problems that are shown at first: on a bad day every VM may have one. */
const FIRST = 6;

const ORDER = ["failing", "unserved", "degraded", "pending"];

/** Everything to be shown, the most urgent first. Pure. */
export function problems({ health, vms, errors }, now) {
  const found = [];
  const host = (name, text) => found.push({ key: name, level: "failing", name, text: visible(text), facts: "" });
  if (health?.resctrl.error) host("resctrl", health.resctrl.error);
  if (health && health.status !== "starting" && (health.libvirt.error || !health.libvirt.connected)) {
    host("libvirt", health.libvirt.error || "not connected");
  }
  for (const [name, text] of Object.entries(errors)) {
    if (text !== health?.resctrl.error) host(name, text);
  }
  for (const [uuid, text] of Object.entries(health?.unserved ?? {})) {
    const level = "unserved";
    found.push({ key: `${level} ${uuid}`, level, name: `VM ${visible(uuid)}`, text: visible(text), facts: "", since: 0 });
  }
  for (const vm of vms) {
    if (vm.state !== "pending" && vm.state !== "degraded") continue;
    found.push({
      key: vm.uuid,
      level: vm.state,
      name: nameOf(vm),
      uuid: vm.uuid,
      text: visible(vm.reason),
      error: vm.last_error ? visible(vm.last_error) : "",
      facts: factsOf(vm, now),
      since: vm.since,
    });
  }
  return found.sort((one, other) => ORDER.indexOf(one.level) - ORDER.indexOf(other.level) || one.since - other.since);
}

function factsOf(vm, now) {
  const facts = [];
  if (asked(vm) !== "nothing") facts.push(`asks for ${asked(vm)}`);
  facts.push(`since ${moment(vm.since)} (${duration(now - vm.since)})`);
  if (vm.retry_in !== null) facts.push(`next try in ${duration(vm.retry_in)}`);
  return facts.join(" · ");
}

export class Attention {
  /**
   * @param list holds an item a problem; `more` shows all of them.
   * @param calm says that there is none.
   * @param open called with the UUID of the VM that a user chose.
   */
  constructor({ list, more, calm }, open) {
    this.list = list;
    this.more = more;
    this.calm = calm;
    this.open = open;
    this.all = false;
    this.found = [];
    more.addEventListener("click", () => {
      this.all = !this.all;
      this.#show();
    });
  }

  update(found, vms) {
    const promised = vms.filter((vm) => vm.state === "kept").length;
    const text = promised ? `Nothing. ${count(promised, "promise")} kept.` : "Nothing.";
    setText(this.calm, text);
    show(this.calm, !found.length);
    this.found = found;
    this.#show();
  }

  #show() {
    keyed(this.list, this.all ? this.found : this.found.slice(0, FIRST), {
      key: (problem) => problem.key,
      create: (problem) => this.#item(problem),
      update: (item, problem) => {
        const [badge, name, reason, error, facts] = item.children;
        setAttribute(item, "data-level", problem.level);
        setAttribute(badge, "data-level", problem.level);
        setText(badge, problem.level);
        setText(name.firstChild, problem.name);
        setText(reason, problem.text);
        setText(error, problem.error ?? "");
        show(error, Boolean(problem.error));
        setText(facts, problem.facts);
      },
      otherwise: document.getElementById("attention-title"),
    });
    show(this.more, this.found.length > FIRST);
    setText(this.more, this.all ? `Only the first ${FIRST}` : `All ${this.found.length}`);
    setAttribute(this.more, "aria-expanded", String(this.all));
  }

  #item(problem) {
    const name = problem.uuid
      ? make("button", { type: "button", class: "link" }, make("bdi"))
      : make("strong", {}, make("bdi"));
    if (problem.uuid) name.addEventListener("click", () => this.open(problem.uuid));
    return make(
      "li",
      {},
      make("span", { class: "badge" }),
      " ",
      name,
      make("p", { class: "reason" }),
      make("p", { class: "error" }),
      make("p", { class: "dim" }),
    );
  }
}
