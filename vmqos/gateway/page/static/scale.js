// SPDX-License-Identifier: Apache-2.0
// The scales of charts: how high they are, in which steps, and what goes beyond them. Pure.

/** The share of the values that a scale is for: what is seen for a few seconds of ten minutes may go beyond it. */
const USUAL = 0.98;

/** How far beyond the usual values the greatest may be without being cut off. */
const NEAR = 1.5;

/** The value that all but the greatest 2 % are at or below; 0 without any. */
export function usual(values) {
  const numbers = Float64Array.from(values.filter((value) => value !== null)).sort();
  return numbers.length ? numbers[Math.min(numbers.length - 1, Math.floor(USUAL * numbers.length))] : 0;
}

/** The top of a scale for these values, and for a limit that is marked in it. One burst does not make all the rest flat. */
export function topOf(values, limit) {
  const needed = Math.max(usual(values), limit ?? 0);
  const greatest = values.reduce((most, value) => Math.max(most, value ?? 0), 0);
  return (greatest <= NEAR * needed ? Math.max(greatest, needed) : needed) * 1.05 || 1;
}

/** What goes beyond the top of a scale: for each run of such samples, its greatest one as `{ time, value }`. */
export function bursts(times, values, top) {
  const found = [];
  let before = false;
  values.forEach((value, index) => {
    const beyond = value > top;
    if (beyond && !before) found.push({ time: times[index], value });
    else if (beyond && value > found.at(-1).value) found[found.length - 1] = { time: times[index], value };
    before = beyond;
  });
  return found;
}

/** Steps between the values beside a scale of bytes; uPlot's own are decimal. */
export const BYTES = [0, 1, 2, 3, 4].flatMap((power) => [1, 2, 5, 10, 20, 50, 100, 200, 512].map((number) => number * 1024 ** power));

/** Steps between the times below a chart, in seconds: times that are multiples of them are round ones in UTC. */
export const TIMES = [10, 30, 60, 120, 180, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];
