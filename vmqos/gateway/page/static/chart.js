// SPDX-License-Identifier: Apache-2.0
// Lines over a time, as inline SVG.

import { keyed, make, makeSvg, setAttribute, setText, show } from "./dom.js";
import { clock, count, duration, minute, moment } from "./format.js";
import { runs } from "./history.js";
import { bursts, timeTicks, topOf, valueTicks } from "./scale.js";

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
  let [line, area, beyond] = ["", "", ""];
  for (const run of points) {
    const dots = run.map(([time, value]) => `${x(time)} ${y(value)}`);
    // A single point is a line of no length, which its round caps make a dot.
    line += `M${dots.join("L")}${run.length === 1 ? "h0" : ""}`;
    area += `M${x(run[0][0])} ${box.height}L${dots.join("L")}L${x(run.at(-1)[0])} ${box.height}Z`;
    for (const [time, value] of run) if (value > box.top) beyond += `M${x(time)} 1h0`;
  }
  return { line, area, beyond };
}

/** The area between the least and the greatest of each slot of time, whose runs have the same times. */
export function bandPath(lows, highs, box) {
  const { x, y } = places(box);
  const dots = (run) => run.map(([time, value]) => `${x(time)} ${y(value)}`).join("L");
  // A single slot is as wide as a line, so that it is seen.
  const wide = (run) => (run.length > 1 ? run : [run[0], [run[0][0] + box.span / box.width, run[0][1]]]);
  return highs.map((run, index) => `M${dots(wide(run))}L${dots(wide(lows[index]).toReversed())}Z`).join("");
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
    const points = runs(history.times, values, history.interval, Sparkline.WIDTH / 2, history.span);
    const { line, area, beyond } = paths(points, box);
    setAttribute(this.line, "d", line);
    setAttribute(this.area, "d", area);
    setAttribute(this.beyond, "d", beyond);
    setAttribute(this.limit, "d", limit ? `M0 ${places(box).y(limit)}H${box.width}` : "");
  }
}

/** Changes of a VM's promise that are told of one moment: in a chart of a day, many may be near it. */
const MOST_NEAR = 3;

/** A chart with axes and a legend, for a VM's details. The pointer, or the arrow keys, choose the moment that is told. */
export class Chart {
  static WIDTH = 480;
  static HEIGHT = 96;

  /**
   * @param series the titles of what is drawn, the first one with an area below it.
   * @param format makes a value a text; `ticks`, what stands beside a scale up to a value (scale.js).
   */
  constructor(title, series, format, ticks = valueTicks) {
    const { WIDTH, HEIGHT } = Chart;
    this.title = title;
    this.series = series;
    this.format = format;
    this.ticks = ticks;
    this.beyondText = make("span", { class: "scale" });
    this.empty = make("p", { class: "empty" });
    this.grid = makeSvg("path", { class: "grid" });
    this.area = makeSvg("path", { class: "area" });
    this.band = makeSvg("path", { class: "band" });
    this.limit = makeSvg("path", { class: "limit" });
    this.events = makeSvg("path", { class: "event" });
    this.lines = series.map((_, index) => makeSvg("path", { class: `line line-${index}` }));
    this.beyond = makeSvg("path", { class: "beyond" });
    this.cursor = makeSvg("path", { class: "cursor" });
    const drawn = [this.grid, this.area, this.band, this.limit, this.events, ...this.lines, this.beyond, this.cursor];
    const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" };
    this.svg = makeSvg("svg", { class: "chart", ...box, role: "img" }, ...drawn);
    const slider = { class: "moment", role: "slider", tabindex: "0", "aria-label": `Moment in: ${title}`, "aria-valuemin": "0" };
    this.moment = make("div", slider, this.svg);
    this.values = make("div", { class: "ticks values", "aria-hidden": "true" });
    this.times = make("div", { class: "ticks times", "aria-hidden": "true" });
    this.told = make("p", { class: "told" });
    const legend = series.map((name, index) => make("span", { class: `legend legend-${index}` }, name));
    this.bandText = make("span", { class: "legend legend-band" }, "least\u2013greatest");
    const caption = make("figcaption", {}, title, " ", ...(series.length > 1 ? legend : []), this.bandText, this.beyondText);
    const plot = make("div", { class: "plot" }, this.values, this.moment, this.empty, this.times);
    this.element = make("figure", {}, caption, plot, this.told);
    this.at = null;
    this.data = null;
    this.moment.addEventListener("pointermove", (event) => this.#point(event));
    this.moment.addEventListener("pointerleave", () => this.#choose(null));
    this.moment.addEventListener("blur", () => this.#choose(null));
    this.moment.addEventListener("keydown", (event) => this.#step(event));
  }

  /**
   * @param times of the samples, in seconds since 1970, and `values`, for each series as many, null where there is none.
   * @param interval seconds between two samples; `span` seconds are shown, up to `now`.
   * @param limit a value to mark by a line, or null.
   * @param events what happened: `{ time, text }`.
   * @param bands for each series its `{ least, greatest }`, where a sample stands for a minute and its value is the mean; the
   *   first series' is drawn. Null where a sample is one look.
   * @param none says why there is no value at all.
   * @param shares for each sample the share of the time in which it was counted, null where it is all; null for all samples.
   */
  draw(data) {
    this.data = data;
    const { times, values, interval, span, now, limit, bands = null, none = "no value yet", shares = null } = data;
    const highs = bands ? bands.map((band) => band.greatest) : values;
    const all = highs.flat();
    const top = topOf(all, limit);
    const box = { width: Chart.WIDTH, height: Chart.HEIGHT, now, span, top };
    const { x, y } = places(box);
    values.forEach((series, index) => {
      const { line, area } = paths(runs(times, series, interval, Chart.WIDTH / 2, span), box);
      setAttribute(this.lines[index], "d", line);
      if (index === 0) setAttribute(this.area, "d", bands ? "" : area);
    });
    const slots = (series, of) => runs(times, series, interval, Chart.WIDTH / 2, span, (known) => of(...known));
    const band = bands && bandPath(slots(bands[0].least, Math.min), slots(bands[0].greatest, Math.max), box);
    setAttribute(this.band, "d", band ?? "");
    show(this.bandText, Boolean(band));
    const highest = times.map((_, index) => highs.reduce((most, series) => Math.max(most, series[index] ?? 0), 0));
    const cut = bursts(times, highest, top);
    setAttribute(this.beyond, "d", cut.map(({ time }) => `M${x(time)} 1l-4 7h8z`).join(""));
    setAttribute(this.limit, "d", limit ? `M0 ${y(limit)}H${box.width}` : "");
    setAttribute(this.events, "d", this.#shown().map(({ time }) => `M${x(time)} 0V${box.height}`).join(""));
    const unknown = all.some((value) => value !== null) ? "" : none;
    setText(this.empty, unknown);
    const ticks = unknown ? [] : this.ticks(top);
    setAttribute(this.grid, "d", ticks.map((value) => `M0 ${y(value)}H${box.width}`).join(""));
    this.#axis(this.values, ticks, this.format, (value) => ["inset-block-start", y(value) / box.height]);
    const inside = timeTicks(now, span).filter((time) => Math.abs(0.5 - x(time) / box.width) < 0.45);
    const label = (time) => clock(time, time).slice(0, span < 300 ? 8 : 5);
    this.#axis(this.times, inside, label, (time) => ["inset-inline-start", x(time) / box.width]);
    const most = cut.reduce((one, { value }) => Math.max(one, value), 0);
    const beyond = cut.length ? `\u25b2 ${count(cut.length, "burst")} beyond the scale, up to ${this.format(most)}` : "";
    const estimates = shares?.some(isPart) ? "estimates in part" : "";
    setText(this.beyondText, [beyond, estimates].filter(Boolean).join(", "));
    setAttribute(this.svg, "aria-label", this.#summary());
    setAttribute(this.moment, "aria-valuemax", Math.round(span));
    this.#tell();
  }

  #axis(parent, ticks, format, place) {
    keyed(parent, ticks, {
      key: String,
      create: () => make("span"),
      update: (element, tick) => {
        setText(element, format(tick));
        const [side, share] = place(tick);
        element.style.setProperty(side, `${(100 * share).toFixed(2)}%`);
      },
    });
  }

  /** The events that are in the picture. */
  #shown() {
    const { events, now, span } = this.data;
    return events.filter(({ time }) => time > now - span && time <= now);
  }

  #point(event) {
    const box = this.moment.getBoundingClientRect();
    const { now, span } = this.data;
    this.#choose(now - span * (1 - (event.clientX - box.left) / box.width));
  }

  #step(event) {
    const { now, span } = this.data;
    const to = { ArrowLeft: -span / 60, ArrowDown: -span / 60, ArrowRight: span / 60, ArrowUp: span / 60, Home: -span, End: span };
    if (!(event.key in to)) return;
    event.preventDefault();
    this.#choose(Math.min(now, Math.max(now - span, (this.at ?? now) + to[event.key])));
  }

  #choose(time) {
    this.at = time;
    if (this.data) this.#tell();
  }

  /** Tell the values of the chosen moment, or the last ones. */
  #tell() {
    const { times, values, span, now, bands = null, shares = null } = this.data;
    if (this.at !== null && this.at < now - span) this.at = null;
    const index = this.at === null ? times.length - 1 : nearest(times, this.at);
    const found = this.series.map((name, number) => {
      const value = values[number][index] ?? null;
      const text = value === null ? "no value" : this.format(value) + (bands ? ` (${this.#range(bands[number], index)})` : "");
      return this.series.length > 1 ? `${name} ${text}` : text;
    });
    const near = this.at === null ? [] : this.#near();
    const when = (bands ? minute : moment)(times[index] ?? now);
    const share = shares?.[index] ?? null;
    const estimate = isPart(share) ? `, an estimate from ${Math.min(99, Math.floor(100 * share))} % of its time` : "";
    const told = values.some((series) => (series[index] ?? null) !== null) ? found.join(", ") : "no value";
    const text = index < 0 ? "no values" : [`${when}: ${told}${estimate}`, ...near].join(" \u2022 ");
    setText(this.told, text);
    setAttribute(this.moment, "aria-valuetext", text);
    setAttribute(this.moment, "aria-valuenow", index < 0 ? 0 : Math.round(times[index] - now + span));
    const x = index < 0 ? 0 : places({ width: Chart.WIDTH, height: Chart.HEIGHT, now, span, top: 1 }).x(times[index]);
    setAttribute(this.cursor, "d", this.at === null ? "" : `M${x} 0V${Chart.HEIGHT}`);
  }

  #range({ least, greatest }, index) {
    return `${this.format(least[index])} \u2013 ${this.format(greatest[index])}`;
  }

  /** The texts of the events that are nearest to the chosen moment. */
  #near() {
    const { span } = this.data;
    const away = ({ time }) => Math.abs(time - this.at);
    const found = this.#shown().filter((event) => away(event) <= span / 50).sort((one, other) => away(one) - away(other));
    const more = found.length - MOST_NEAR;
    return [...found.slice(0, MOST_NEAR).map((one) => one.text), ...(more > 0 ? [`and ${count(more, "more change")}`] : [])];
  }

  #summary() {
    const { values, bands = null, span, none = "no value" } = this.data;
    const known = (series) => series.filter((value) => value !== null);
    const parts = this.series.map((name, index) => {
      const numbers = known(values[index]);
      if (!numbers.length) return `${name}: ${none}`;
      const low = this.format(known(bands?.[index].least ?? numbers).reduce((one, other) => Math.min(one, other)));
      const high = this.format(known(bands?.[index].greatest ?? numbers).reduce((one, other) => Math.max(one, other)));
      return `${name}: now ${this.format(numbers.at(-1))}, between ${low} and ${high}`;
    });
    return `${this.title} over the last ${duration(span)}. ${parts.join(". ")}.`;
  }
}

/** Whether something was counted for a part of the time alone. */
function isPart(share) {
  return share !== null && share < 1;
}

/** The index of the time that is nearest to one; -1 where there is none. */
function nearest(times, one) {
  let found = -1;
  times.forEach((time, index) => {
    if (found < 0 || Math.abs(time - one) < Math.abs(times[found] - one)) found = index;
  });
  return found;
}
