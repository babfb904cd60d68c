// SPDX-License-Identifier: Apache-2.0
// Which VM slows which, as the agent judges it. Pure but for `Slowed`.

import { keyed, make, setText, show } from "./dom.js";
import { duration, moment, visible } from "./format.js";
import { nameOf } from "./names.js";

const QUESTION = "v1/neighbours";

/** Seconds between two questions: a verdict needs many looks at the counters. */
const PAUSE = 10;

const CAUSES = { cache: "cache", "memory-bandwidth": "memory bandwidth" };

/** The pairs of VMs that both run, as `{ key, victim, culprit, verb, cause, loss, facts, evidence, advice }`. Pure. */
export function pairsOf(answer, vms, now) {
  const running = new Map(vms.map((vm) => [vm.uuid, vm]));
  return (answer?.pairs ?? [])
    .filter((pair) => running.has(pair.victim) && running.has(pair.culprit))
    .map((pair) => ({
      key: `${pair.victim} ${pair.culprit} ${pair.cause}`,
      victim: running.get(pair.victim),
      culprit: running.get(pair.culprit),
      cause: CAUSES[pair.cause] ?? visible(pair.cause),
      verb: pair.until === null ? "is" : "was",
      loss: `Its work ${pair.until === null ? "takes" : "took"} ${answer.counted ? "" : "about "}${pair.slower.toFixed(1)} times as long.`,
      facts: `${time(pair, now)} \u00b7 ${Math.round(100 * pair.confidence)} % sure`
        + (answer.counted ? "" : " \u00b7 an estimate: hardware events are not counted here"),
      evidence: pair.evidence.map(visible),
      advice: visible(pair.advice),
    }));
}

function time({ since, until }, now) {
  if (until === null) return `since ${moment(since)} (${duration(now - since)})`;
  return `from ${moment(since)} to ${moment(until)}: the culprit moves less again`;
}

export class Slowed {
  #answer = null;
  #due = 0;

  /** @param open called with the UUID of the VM that a user chose. */
  constructor(section, list, open) {
    this.section = section;
    this.list = list;
    this.open = open;
  }

  /** The question for this look; none while it is not due. */
  question(now) {
    return now < this.#due ? {} : { slowed: QUESTION };
  }

  /** Take an answer to it; an agent before this one has none. */
  hear({ value }, now) {
    this.#answer = value ?? null;
    this.#due = now + PAUSE;
  }

  update(vms, now) {
    const found = pairsOf(this.#answer, vms, now);
    show(this.section, found.length > 0);
    keyed(this.list, found, {
      key: (pair) => pair.key,
      create: (pair) => this.#item(pair),
      update: (item, pair) => this.#update(item, pair),
      otherwise: document.getElementById("slowed-title"),
    });
  }

  #item({ victim, culprit }) {
    const name = (vm) => {
      const button = make("button", { type: "button", class: "link" }, make("bdi"));
      button.addEventListener("click", () => this.open(vm.uuid));
      return button;
    };
    const why = make("details", {}, make("summary", {}, "Evidence"), make("ul"));
    return make(
      "li",
      { "data-level": "slowed" },
      make("span", { class: "badge", "data-level": "degraded" }),
      name(victim),
      make("span"),
      name(culprit),
      make("p", { class: "loss" }),
      make("p", { class: "dim" }),
      why,
      make("p", { class: "advice" }, "What ends it, once the culprit is resized to a copy of its flavor with this: ", make("code")),
    );
  }

  #update(item, pair) {
    const [badge, victim, verb, culprit, loss, facts, why, advice] = item.children;
    setText(badge, pair.cause);
    setText(victim.firstChild, nameOf(pair.victim));
    setText(culprit.firstChild, nameOf(pair.culprit));
    setText(verb, ` ${pair.verb} slowed by `);
    setText(loss, pair.loss);
    setText(facts, pair.facts);
    keyed(why.lastChild, pair.evidence.map((text, at) => ({ text, at })), {
      key: ({ at }) => at,
      create: () => make("li"),
      update: (line, { text }) => setText(line, text),
      otherwise: why.firstChild,
    });
    show(advice, Boolean(pair.advice));
    setText(advice.lastChild, pair.advice);
  }
}
