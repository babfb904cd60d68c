// SPDX-License-Identifier: Apache-2.0
// Values as people read them. Pure.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Bytes in the largest binary unit that keeps the number above 1, such as "1.5 MiB". */
export function size(bytes) {
  let unit = 0;
  while (bytes >= 1023.95 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || bytes >= 99.95 ? 0 : 1;
  return `${bytes.toFixed(digits).replace(/\.0$/, "")} ${UNITS[unit]}`;
}

/** Bytes a second. */
export function rate(bytes) {
  return `${size(bytes)}/s`;
}

const THOUSANDS = ["", " k", " M", " G", " T"];

/** A number of events a second in the largest unit that keeps it above 1, such as "2.3 G/s". */
export function events(number) {
  let unit = 0;
  while (number >= 999.95 && unit < THOUSANDS.length - 1) {
    number /= 1000;
    unit += 1;
  }
  const digits = number >= 99.95 ? 0 : 1;
  return `${number.toFixed(digits).replace(/\.0$/, "")}${THOUSANDS[unit]}/s`;
}

/** A ratio such as instructions for each cycle: "1.42". */
export function ratio(number) {
  return number.toFixed(2);
}

/** A share of a whole: "26 %", or "2.5 %" where it is small. */
export function portion(number) {
  return `${(100 * number).toFixed(number >= 0.0995 ? 0 : 1).replace(/\.0$/, "")} %`;
}

/** A power: "12.3 W". */
export function power(watts) {
  return `${watts.toFixed(watts >= 99.95 ? 0 : 1).replace(/\.0$/, "")} W`;
}

/** Seconds in the two largest units, such as "2 h 5 min". */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  while (parts.length > 1 && !parts[0][0]) parts.shift();
  return parts.slice(0, 2).filter(([number]) => number).map(([number, unit]) => `${number} ${unit}`).join(" ") || "0 s";
}

/** The last bandwidth of a VM that waits for hardware counters, with its age: "1.2 GB/s 23 s ago"; "" without one. */
export function lastMeasured(reading) {
  const total = reading?.measured?.rates?.total ?? null;
  return total === null ? "" : `${rate(total)} ${duration(reading.measured.age_seconds)} ago`;
}

/** A moment, given in seconds since 1970, in UTC as the command tells it: "2026-11-25T01:23:30Z". */
export function iso(seconds) {
  return Number.isFinite(seconds) ? `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z` : "";
}

/** Its time of day, "01:23:30", with the day before it where that is not today's. */
export function clock(seconds, now = Date.now() / 1000) {
  const [day, time] = iso(seconds).slice(0, -1).split("T");
  return day === iso(now).slice(0, 10) ? time : `${day} ${time ?? ""}`;
}

/** The same, with a word that says that it is UTC. */
export function moment(seconds, now = Date.now() / 1000) {
  return `${clock(seconds, now)} UTC`;
}

/** The minute that begins at a moment, "01:23 UTC". */
export function minute(seconds, now = Date.now() / 1000) {
  return `${clock(seconds, now).slice(0, -3)} UTC`;
}

/**
 * A stranger's text with every character that is not plainly seen written as an escape: control and format characters,
 * direction marks, line breaks, and every blank but the ordinary one.
 */
export function visible(text) {
  return String(text).replace(
    /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu,
    (character) => `\\u{${character.codePointAt(0).toString(16)}}`,
  );
}

/** A noun with its number: "1 way", "2 ways". */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** The numbers of the ways in a mask, highest first. */
export function waysOf(mask) {
  const bits = BigInt(`0x${mask || "0"}`);
  const found = [];
  for (let way = bits.toString(2).length - 1; way >= 0; way -= 1) {
    if ((bits >> BigInt(way)) & 1n) found.push(way);
  }
  return found;
}

/** How many ways on which cache: "2" where it is the same on all, "0:2 1:4" where not, "" for none. */
export function waysByCache(masks) {
  const counts = gathered(masks, (mask) => String(waysOf(mask).length));
  return counts.length > 1 ? counts.map(([ids, number]) => `${ids}:${number}`).join(" ") : (counts[0]?.[1] ?? "");
}

/** What is the same on all caches, or else what is where: "50 %", "0: 50 %, 1: 80 %". */
export function byCache(values, told) {
  return gathered(values, told).length > 1 ? eachCache(values, told) : (gathered(values, told)[0]?.[1] ?? "");
}

/** What is where, each text once: "0-11,13: ff, 12: f". */
export function eachCache(values, told) {
  return gathered(values, told).map(([ids, text]) => `${ids}: ${text}`).join(", ");
}

/** The caches' values as texts, those that have one text together: [[ids, text], ...]. */
function gathered(values, told) {
  const found = new Map();
  for (const [cache, value] of Object.entries(values)) {
    const text = told(value, cache);
    found.set(text, [...(found.get(text) ?? []), cache]);
  }
  return [...found].map(([text, caches]) => [listOf(caches.map(Number)), text]);
}

/** The limit of a VM's memory bandwidth that is in force, such as "50 %"; "" where there is none. */
export function limitOf(vm) {
  return byCache(vm.bandwidth ?? {}, (limit) => `${limit} ${visible(vm.bandwidth_unit ?? "")}`);
}

/** Numbers as the kernel lists CPUs: "0-3,8". */
export function listOf(numbers) {
  const runs = [];
  for (const number of [...new Set(numbers)].sort((one, other) => one - other)) {
    if (runs.length && runs.at(-1)[1] === number - 1) runs.at(-1)[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

/** The numbers of such a list. */
export function numbersIn(text) {
  return text.split(",").filter(Boolean).flatMap((part) => {
    const [first, last] = part.split("-").map(Number);
    return Array.from({ length: (last ?? first) - first + 1 }, (_, index) => first + index);
  });
}

// The command line has the same words and sentences.
const WORDS = {
  unavailable: "no value",
  "not-monitored": "no group",
  "no-previous": "...",
  "went-back": "began anew",
  "no-counter": "none",
};
const SENTENCES = {
  unavailable: "the hardware has no valid value now",
  error: "the hardware or the kernel failed",
  unassigned: "no hardware counter is assigned to the VM now: there are too few for all VMs",
  "no-counter": "this machine does not count it",
  unreadable: "the permission to read it is missing",
  vanished: "its group went away",
  "not-monitored": "the VM is in no group that is monitored",
  "no-previous": "there is no earlier reading yet",
  "went-back": "the counter began anew",
};

/** A word in place of a number that there is not. */
export function word(reason) {
  return WORDS[reason] ?? visible(reason);
}

/** Why there is no number, in plain words. */
export function why(reason) {
  return SENTENCES[reason] ?? visible(reason);
}

/**
 * Why a VM has no number of what is counted, in plain words; of one that is in no group, in the agent's.
 *
 * @param reading its own counters; none where it is in no group, or where there are no counters at all.
 * @param counted the host's counters.
 * @param reason the one that the agent tells; none where there is a number now.
 */
export function lack(vm, reading, counted, reason) {
  if (!counted) return "the agent tells no counters";
  if (!reading) return visible(vm.unmonitored_reason || "") || why("not-monitored");
  return reason ? why(reason) : "no value yet";
}
