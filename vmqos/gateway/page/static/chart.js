// SPDX-License-Identifier: Apache-2.0
// Lines over the last ten minutes, as inline SVG.

import { make, makeSvg, setAttribute, setText } from "./dom.js";
import { duration } from "./format.js";
import { runs } from "./history.js";

/** The path of a line and of the area below it, in a box of this size: `span` seconds to `now`, and values from 0 to `top`. */
export function paths(points, { width, height, now, span, top }) {
  const x = (time) => (width * (1 - (now - time) / span)).toFixed(1);
  const y = (value) => (height - 1 - (height - 2) * Math.min(1, value / (top || 1))).toFixed(1);
  let line = "";
  let area = "";
  for (const run of points) {
    const dots = run.map(([time, value]) => `${x(time)} ${y(value)}`);
    // A single point is a line of no length, which its round caps make a dot.
    line += `M${dots.join("L")}${run.length === 1 ? "h0" : ""}`;
    area += `M${x(run[0][0])} ${height}L${dots.join("L")}L${x(run.at(-1)[0])} ${height}Z`;
  }
  return { line, area };
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
    this.element = makeSvg(
      "svg",
      { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.area,
      this.limit,
      this.line,
    );
  }

  /** Draw a series; `limit` is a value to mark by a line, or null. */
  draw(history, values, top, limit) {
    const box = { width: Sparkline.WIDTH, height: Sparkline.HEIGHT, now: history.latest, span: history.span, top };
    const points = runs(history.times, values, history.interval, Sparkline.WIDTH / 2, history.span);
    const { line, area } = paths(points, box);
    setAttribute(this.line, "d", line);
    setAttribute(this.area, "d", area);
    const height = box.height - 1 - (box.height - 2) * Math.min(1, (limit ?? 0) / (top || 1));
    setAttribute(this.limit, "d", limit ? `M0 ${height.toFixed(1)}H${box.width}` : "");
  }
}

/** A chart with a scale and a legend, for a VM's details. */
export class Chart {
  static WIDTH = 480;
  static HEIGHT = 96;

  /** @param series what is drawn: `[name in the history, title]`, the first one with an area below it. */
  constructor(title, series, format) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.top = make("span", { class: "scale" });
    this.lines = series.map((_, index) => makeSvg("path", { class: `line line-${index}` }));
    this.area = makeSvg("path", { class: "area" });
    this.limit = makeSvg("path", { class: "limit" });
    this.svg = makeSvg(
      "svg",
      { class: "chart", viewBox: `0 0 ${Chart.WIDTH} ${Chart.HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      this.area,
      this.limit,
      ...this.lines,
    );
    const legend = series.map(([, name], index) => make("span", { class: `legend legend-${index}` }, name));
    const caption = make("figcaption", {}, title, " ", ...(series.length > 1 ? legend : []), this.top);
    this.begin = make("span");
    const ends = make("p", { class: "ends" }, this.begin, make("span", {}, "now"));
    this.element = make("figure", {}, caption, this.svg, ends);
  }

  /** Draw a VM's series; `limit` is a value to mark by a line, or null. */
  draw(history, uuid, limit) {
    const all = this.series.map(([name]) => history.values(uuid, name));
    const numbers = all.flat().filter((value) => value !== null);
    const top = numbers.reduce((most, value) => Math.max(most, value), limit || 1);
    const box = { width: Chart.WIDTH, height: Chart.HEIGHT, now: history.latest, span: history.span, top };
    all.forEach((values, index) => {
      const { line, area } = paths(runs(history.times, values, history.interval, Chart.WIDTH / 2, history.span), box);
      setAttribute(this.lines[index], "d", line);
      if (index === 0) setAttribute(this.area, "d", area);
    });
    const height = box.height - 1 - (box.height - 2) * Math.min(1, (limit ?? 0) / top);
    setAttribute(this.limit, "d", limit ? `M0 ${height.toFixed(1)}H${box.width}` : "");
    setText(this.top, numbers.length ? `top of the scale: ${this.format(top)}` : "no counters yet");
    const span = duration(history.span);
    setText(this.begin, `${span} ago`);
    setAttribute(this.svg, "aria-label", this.#told(all, span));
  }

  #told(all, span) {
    const parts = this.series.map(([, name], index) => {
      const numbers = all[index].filter((value) => value !== null);
      if (!numbers.length) return `${name}: no counters`;
      const low = this.format(numbers.reduce((one, other) => Math.min(one, other)));
      const high = this.format(numbers.reduce((one, other) => Math.max(one, other)));
      return `${name}: now ${this.format(numbers.at(-1))}, between ${low} and ${high}`;
    });
    return `${this.title} over the last ${span}. ${parts.join(". ")}.`;
  }
}
