// SPDX-License-Identifier: Apache-2.0
// The last changes on the host, as the agent tells them. Pure but for what `Events` remembers.

/** Events that are remembered: the agent has up to 2000. */
const MOST = 500;

/** VMs that came in one pass and are told one by one: an agent that has just started sees all of them at once. */
const FEW = 3;

/**
 * The events that are known, the oldest first. They are asked for with every look after which the agent's health names
 * another last one, and without waiting: only two clients of all that the gateway has can wait at a time.
 */
export class Events {
  #epoch = "";
  #last = 0;
  #known = [];
  #lastEvent = null;

  /** Whether the agent tells of events. */
  areTold = false;

  /** What to ask the agent for, by name. One before this one does not say which event is the last. */
  question(health) {
    if ((health?.last_event ?? null) !== null && health.last_event === this.#lastEvent) return {};
    return { events: `v1/events?after=${this.#last}&epoch=${encodeURIComponent(this.#epoch)}` };
  }

  get known() {
    return this.#known;
  }

  /** Take an answer to it; `health` is the one that was there before. */
  hear({ value }, health) {
    this.areTold = Boolean(value);
    this.#lastEvent = value ? (health?.last_event ?? null) : null;
    if (value) this.#add(value);
  }

  /** Remember an answer. Another run of the agent numbers its events anew. */
  #add(answer) {
    const { epoch } = answer;
    const news = answer.events.filter((event) => epoch !== this.#epoch || event.number > this.#last);
    this.#known = [...this.#known, ...news.map((event) => ({ ...event, key: `${epoch} ${event.number}` }))].slice(-MOST);
    this.#epoch = epoch;
    this.#last = answer.last;
  }
}

/** The events in heaps, the newest first: each one alone, but for VMs that came in one pass with one state. */
export function heapsOf(events) {
  const found = [];
  for (const event of events) {
    const last = found.at(-1);
    if (last && came(event) && came(last[0]) && last[0].time === event.time && last[0].state === event.state) last.push(event);
    else found.push([event]);
  }
  return found.flatMap((heap) => (heap.length > FEW ? [heap] : heap.map((event) => [event]))).reverse();
}

function came(event) {
  return event.kind === "promise" && event.before === "";
}
