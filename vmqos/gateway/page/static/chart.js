// SPDX-License-Identifier: Apache-2.0
// A chart with its title and legend, and with the values of a moment in words: a reader of the screen sees no picture.

import { make, setAttribute, setText, show } from "./dom.js";
import { count, duration, minute, moment } from "./format.js";
import { slots } from "./history.js";
import { Plot } from "./plot.js";
import { bursts, topOf } from "./scale.js";

/** Changes of a VM's promise that are told of one moment: in a chart of a day, many may be near it. */
const MOST_NEAR = 3;

/** How many points a line has at most: noise is no line any more where there are many. */
const MOST_SLOTS = 240;

/** A chart of a VM's details. The pointer, or the arrow keys, choose the moment that is told. */
export class Chart {
  /**
   * @param series the titles of what is drawn, the first one with an area below it.
   * @param format makes a value a text; `steps` between the values beside the scale (scale.js), undefined for decimal ones.
   */
  constructor(title, series, format, steps) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.beyondText = make("span", { class: "scale" });
    this.empty = make("p", { class: "empty" });
    this.picture = new Plot(series.length, format, steps);
    const slider = { class: "moment", role: "slider", tabindex: "0", "aria-label": `Moment in: ${title}`, "aria-valuemin": "0" };
    this.moment = make("div", slider, this.picture.element);
    this.told = make("p", { class: "told" });
    const legend = series.map((name, index) => make("span", { class: `legend legend-${index}` }, name));
    this.bandText = make("span", { class: "legend legend-band" }, "least\u2013greatest");
    const caption = make("figcaption", {}, title, " ", ...(series.length > 1 ? legend : []), this.bandText, this.beyondText);
    this.element = make("figure", {}, caption, make("div", { class: "plot" }, this.moment, this.empty), this.told);
    this.at = null;
    this.data = null;
    this.moment.addEventListener("pointermove", ({ clientX }) => this.#choose(this.picture.timeAt(clientX)));
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
    const highest = times.map((_, index) => highs.reduce((most, series) => Math.max(most, series[index] ?? 0), 0));
    const cut = bursts(times, highest, top);
    const isEmpty = all.every((value) => value === null);
    const drawn = (series, of) => slots(times, series, interval, MOST_SLOTS, span, of && ((known) => of(...known)));
    const lines = values.map((series) => drawn(series));
    const area = bands ? [drawn(bands[0].greatest, Math.max), drawn(bands[0].least, Math.min)] : [lines[0], lines[0].map(() => [0, 0])];
    const [events, beyond] = [this.#shown(), cut].map((all) => all.map(({ time }) => time));
    this.picture.draw({ now, span, limit, top: isEmpty ? null : top, area, lines, events, beyond });
    show(this.bandText, bands !== null && !isEmpty);
    setText(this.empty, isEmpty ? none : "");
    const most = cut.reduce((one, { value }) => Math.max(one, value), 0);
    const burstText = cut.length ? `\u25b2 ${count(cut.length, "burst")} beyond the scale, up to ${this.format(most)}` : "";
    const estimates = shares?.some(isPart) ? "estimates in part" : "";
    setText(this.beyondText, [burstText, estimates].filter(Boolean).join(", "));
    setAttribute(this.picture.element, "aria-label", this.#summary());
    setAttribute(this.moment, "aria-valuemax", Math.round(span));
    this.#tell();
  }

  /** The events that are in the picture. */
  #shown() {
    const { events, now, span } = this.data;
    return events.filter(({ time }) => time > now - span && time <= now);
  }

  #step(event) {
    if (!this.data) return;
    const { now, span } = this.data;
    const to = { ArrowLeft: -span / 60, ArrowDown: -span / 60, ArrowRight: span / 60, ArrowUp: span / 60, Home: -span, End: span };
    if (!(event.key in to)) return;
    event.preventDefault();
    this.#choose((this.at ?? now) + to[event.key]);
  }

  #choose(time) {
    if (!this.data) return;
    const { now, span } = this.data;
    this.at = time === null ? null : Math.min(now, Math.max(now - span, time));
    this.#tell();
  }

  /** Tell the values of the chosen moment, or the last ones. */
  #tell() {
    const { times, values, span, now, bands = null, shares = null } = this.data;
    if (this.at !== null && this.at < now - span) this.at = null;
    this.picture.choose(this.at);
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

/** The number of the time that is nearest to one; -1 where there is none. */
function nearest(times, one) {
  return times.reduce((best, time, index) => (Math.abs(time - one) < Math.abs(times[best] - one) ? index : best), times.length - 1);
}
