// SPDX-License-Identifier: Apache-2.0
// A small picture of how many ways a VM needs, with what `vmqos size` said of it.

import { keyed, make, setAttribute, setText, show } from "./dom.js";
import { duration, moment, ratio, visible } from "./format.js";

/** What ways are for that are not for code and data at once. */
const PARTS = { code: " for code", data: " for data" };
const share = (part) => `${(100 * part).toFixed(1)} %`;
const partOf = (point) => point.missed ?? point.traffic_part ?? 0;
const ways = (number, part = "") => `${visible(number)} ${number === 1 ? "way" : "ways"}${PARTS[part] ?? ""}`;

/** A bar for each number of ways: the lengths are parts of the greatest, as in the terminal. Pure. */
export function barsOf({ curve, ways: knee, at_least: atLeast }) {
  const most = Math.max(...curve.map(partOf));
  return curve.map((point) => ({
    ways: point.ways,
    length: most ? partOf(point) / most : 0,
    value: share(partOf(point)),
    slower: point.slower === null ? "" : `${ratio(point.slower)} x`,
    mark: point.ways !== knee ? "" : atLeast ? "at least" : "enough",
    isEnough: point.ways >= knee,
  }));
}

/** What the factors beside the bars are; empty where there are none. */
function factorsOf({ curve, part: kind }) {
  if (curve.every(({ slower }) => slower === null)) return "";
  return `x: how many times as long its work took as with ${ways(curve.at(-1).ways, kind)}`;
}

/** What the command said, as pairs of a text and its kind: "needs", "doubt" or "". Pure. */
export function wordsOf(size, now) {
  const { curve, ways: knee, at_least: atLeast, counted, steady, found_at: found, part: kind } = size;
  const [first, last] = [curve[0], curve.at(-1)];
  const needs = knee === first.ways ? `no more than the ${ways(knee, kind)} that it began with` : `${ways(knee, kind)}${atLeast ? " at least" : ""}`;
  const part = (number) => share(partOf(curve.find((point) => point.ways === number) ?? last));
  const beside = last.ways === knee ? "" : `, and ${part(last.ways)} with ${visible(last.ways)}`;
  const of = counted ? `misses ${part(knee)} of its references` : `moves ${part(knee)} of its traffic with ${ways(first.ways, kind)}`;
  return [
    [counted ? `It needs ${needs}.` : `A guess: it needs ${needs}.`, "needs"],
    [steady ? "" : "Do not trust this: the VM did other work meanwhile.", "doubt"],
    [counted ? "" : "Nothing counts its misses of the L3 here, so its traffic with memory stands for them.", ""],
    [`With ${ways(knee, kind)} it ${of}${beside}.`, ""],
    [atLeast ? "The last way spared it much, and no further one was tried." : "", ""],
    [`Found by vmqos size at ${moment(found, now)}, ${duration(now - found)} ago.`, ""],
  ].filter(([text]) => text);
}

export class Curve {
  constructor() {
    this.title = make("span");
    this.factors = make("span", { class: "factors" });
    const caption = make("figcaption", {}, this.title, this.factors);
    this.bars = make("ol");
    this.words = make("div");
    this.element = make("figure", { class: "curve", hidden: "" }, caption, this.bars, this.words);
  }

  /** @param size what was found of the VM (sizes.js); null where nothing was, and nothing is shown. */
  update(size, now) {
    show(this.element, size !== null);
    if (size === null) return;
    setAttribute(this.element, "data-sure", size.counted && size.steady ? "" : null);
    setText(this.title, size.counted ? "Misses by ways" : "Traffic with memory by ways");
    setText(this.factors, factorsOf(size));
    keyed(this.bars, barsOf(size), {
      key: (bar) => bar.ways,
      create: () => {
        const mark = make("span", { class: "mark" }, "\u25c0 ", make("span"));
        const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
        return make("li", {}, make("span"), bar, make("span"), make("span"), mark);
      },
      update: (item, bar) => this.#draw(item, bar),
    });
    keyed(this.words, wordsOf(size, now).map(([text, kind], at) => ({ text, kind, at })), {
      key: ({ at }) => at,
      create: () => make("p"),
      update: (line, { text, kind }) => {
        setText(line, text);
        setAttribute(line, "class", kind || null);
      },
    });
  }

  #draw(item, { ways: number, length, value, slower, mark, isEnough }) {
    const [which, bar, told, factor, sign] = item.children;
    setAttribute(item, "class", mark ? "knee" : isEnough ? "enough" : null);
    setText(which, ways(number));
    bar.firstChild.style.inlineSize = `${(100 * length).toFixed(1)}%`;
    setText(told, value);
    setText(factor, slower);
    show(sign, Boolean(mark));
    setText(sign.lastChild, mark);
  }
}
