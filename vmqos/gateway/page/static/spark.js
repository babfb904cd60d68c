// SPDX-License-Identifier: Apache-2.0
// A line over the last minutes in a table's cell, as inline SVG.

import { makeSvg, setAttribute } from "./dom.js";
import { slots } from "./history.js";

/** Where a moment and a value are in a box: `span` seconds to `now`, and values from 0 to `top`. */
function places({ width, height, now, span, top }) {
  return {
    x: (time) => (width * (1 - (now - time) / span)).toFixed(1),
    y: (value) => (height - 1 - (height - 2) * Math.min(1, value / (top || 1))).toFixed(1),
  };
}

/** The path of a line and of the area below it, and ticks along the top where the line goes beyond it. */
export function paths(points, box) {
  const { x, y } = places(box);
  let [line, area, beyond, before] = ["", "", "", null];
  for (const [time, value] of [...points, [0, null]]) {
    if (value !== null) {
      const dot = `${x(time)} ${y(value)}`;
      // A single point is a line of no length, which its round caps make a dot.
      line += before === null ? `M${dot}h0` : `L${dot}`;
      area += before === null ? `M${x(time)} ${box.height}L${dot}` : `L${dot}`;
      if (value > box.top) beyond += `M${x(time)} 1h0`;
    } else if (before !== null) area += `V${box.height}Z`;
    before = value;
  }
  return { line, area, beyond };
}

/** A line without axes, for a table's cell. What it shows is in the cell's text, too, so it is hidden from readers. */
export class Sparkline {
  static WIDTH = 120;
  static HEIGHT = 24;

  constructor() {
    const { WIDTH, HEIGHT } = Sparkline;
    this.area = makeSvg("path", { class: "area" });
    this.line = makeSvg("path", { class: "line" });
    this.limit = makeSvg("path", { class: "limit" });
    this.beyond = makeSvg("path", { class: "beyond" });
    this.element = makeSvg(
      "svg",
      { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.area,
      this.limit,
      this.line,
      this.beyond,
    );
  }

  /** Draw a series; `limit` is a value to mark by a line, or null. */
  draw(history, values, top, limit) {
    const box = { width: Sparkline.WIDTH, height: Sparkline.HEIGHT, now: history.latest, span: history.span, top };
    const points = slots(history.times, values, history.interval, Sparkline.WIDTH / 2, history.span);
    const { line, area, beyond } = paths(points, box);
    setAttribute(this.line, "d", line);
    setAttribute(this.area, "d", area);
    setAttribute(this.beyond, "d", beyond);
    setAttribute(this.limit, "d", limit ? `M0 ${places(box).y(limit)}H${box.width}` : "");
  }
}
