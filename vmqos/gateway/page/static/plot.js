// SPDX-License-Identifier: Apache-2.0
// The picture of a chart, which uPlot draws for as long as it is shown.

import { make } from "./dom.js";
import { clock } from "./format.js";
import { TIMES } from "./scale.js";
import uPlot from "./vendor/uplot/uPlot.esm.js";

const LOOKS = [["--spark", []], ["--spark-2", [5, 3]], ["--spark-3", [1.5, 3.5]]];

/** What is drawn now, and the colours and the font of all of it: the page is asked for them once, for an answer takes time. */
const drawn = new Set();
let style = null;
for (const scheme of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
  matchMedia(scheme).addEventListener("change", () => {
    style = null;
    for (const plot of drawn) plot.redraw();
  });
}

function styleOf(element) {
  const names = ["--spark", "--spark-2", "--spark-3", "--dim", "--line", "--pending", "--degraded", "font-size", "font-family"];
  return (style ??= Object.fromEntries(names.map((name) => [name, getComputedStyle(element).getPropertyValue(name)])));
}

export class Plot {
  #data = null;
  #plot = null;

  /** @param lines how many there are; `format` makes a value a text; `steps` as in Chart. */
  constructor(lines, format, steps) {
    this.lines = lines;
    this.format = format;
    this.steps = steps;
    this.element = make("div", { class: "chart", role: "img" });
    // Told of its size, as soon as it has one, the page need not be laid out anew for each chart.
    new ResizeObserver(([{ contentRect: { width, height } }]) => this.#fit(Math.round(width), Math.round(height))).observe(this.element);
  }

  /**
   * @param lines for each its pairs of a time and a value, null where there is none; `area` has the same for its two edges.
   * @param span seconds that are shown, up to `now`.
   * @param top of the scale; null where there is no value at all.
   * @param limit a value to mark, or null; `events` times to mark, and `beyond`, those of bursts.
   */
  draw(data) {
    this.#data = data;
    this.#plot?.batch((plot) => plot.setData(this.#columns()));
  }

  /** Mark a time, or none for null. */
  choose(time) {
    this.#plot?.setCursor({ left: time === null ? -1 : this.#plot.valToPos(time, "x"), top: 0 });
  }

  /** The time at a place on the screen; null while nothing is drawn. */
  timeAt(clientX) {
    return this.#plot?.posToVal(clientX - this.#plot.over.getBoundingClientRect().left, "x") ?? null;
  }

  /** Draw while there is room. In a folded row, or one that is gone, there is none, and everything is freed. */
  #fit(width, height) {
    if (width && this.#plot) this.#plot.setSize({ width, height });
    else if (width && this.#data) drawn.add((this.#plot = new uPlot(this.#options(width, height), this.#columns(), this.element)));
    else if (this.#plot) {
      drawn.delete(this.#plot);
      this.#plot.destroy();
      this.#plot = null;
    }
    // For tests, and for people who look with the browser's tools.
    this.element.plot = this.#plot;
  }

  #columns() {
    const series = [...this.#data.area, ...this.#data.lines];
    return [series[0].map(([time]) => time), ...series.map((pairs) => pairs.map(([, value]) => value))];
  }

  #options(width, height) {
    const { "font-size": fontSize, "font-family": family } = styleOf(this.element);
    const colour = (name) => () => styleOf(this.element)[name];
    const size = Math.round(parseFloat(fontSize));
    const axis = { font: `${size}px ${family}`, stroke: colour("--dim"), ticks: { show: false } };
    const digits = () => (this.#data.span < 300 ? 8 : 5);
    const isGap = (value) => (value ?? null) === null;
    const lonely = ({ data }, series) => [...data[0].keys()].filter((at) => isGap(data[series][at - 1]) && isGap(data[series][at + 1]));
    const edge = { width: 0, alpha: 0.2, points: { show: false } };
    const lines = LOOKS.slice(0, this.lines).map(([name, dash]) => {
      return { stroke: colour(name), width: 1.5, dash, cap: "round", points: { show: false, filter: lonely, size: 3, width: 0 } };
    });
    return {
      width,
      height,
      padding: [8, () => Math.ceil(0.32 * digits() * size), 0, 0],
      series: [{}, edge, edge, ...lines],
      bands: [{ series: [1, 2], fill: colour("--spark") }],
      scales: {
        x: { time: false, range: () => [this.#data.now - this.#data.span, this.#data.now] },
        y: { range: () => [this.#data.top && 0, this.#data.top] },
      },
      axes: [
        {
          ...axis, incrs: TIMES, size: 2 * size, gap: 7, space: () => digits() * size, grid: { show: false },
          values: (_, ticks) => ticks.map((time) => clock(time, time).slice(0, digits())),
        },
        {
          ...axis, incrs: this.steps, size: 6.6 * size, space: 19, grid: { stroke: colour("--line"), width: 1 },
          values: (_, ticks) => ticks.map(this.format),
        },
      ],
      cursor: { y: false, points: { size: 7 }, dataIdx: (_, series, index) => (series === 1 || series === 2 ? null : index) },
      select: { show: false },
      legend: { show: false },
      hooks: { draw: [(plot) => this.#mark(plot, styleOf(this.element))] },
    };
  }

  /** Mark the limit and what happened by dashed lines, and bursts by triangles at the top. */
  #mark({ ctx, bbox: { left, top, width, height }, valToPos }, colours) {
    const [x, y] = ["x", "y"].map((scale) => (value) => Math.round(valToPos(value, scale, true)));
    const one = uPlot.pxRatio;
    ctx.save();
    Object.assign(ctx, { lineWidth: one, strokeStyle: colours["--dim"], fillStyle: colours["--degraded"] });
    ctx.setLineDash([3 * one, 3 * one]);
    if (this.#data.limit && this.#data.top) ctx.stroke(new Path2D(`M${left} ${y(this.#data.limit) + one / 2}h${width}`));
    ctx.strokeStyle = colours["--pending"];
    for (const time of this.#data.events) ctx.stroke(new Path2D(`M${x(time) + one / 2} ${top}v${height}`));
    for (const time of this.#data.beyond) ctx.fill(new Path2D(`M${x(time)} ${top}l${-4 * one} ${7 * one}h${8 * one}z`));
    ctx.restore();
  }
}
