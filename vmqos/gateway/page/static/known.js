// SPDX-License-Identifier: Apache-2.0
// What the agent tells of VMs and caches, which stays as it is from pass to pass: asked for when its health says that it
// has changed. Pure but for `Known`.

const QUESTIONS = { vms: "v1/vms", caches: "v1/caches", capabilities: "v1/capabilities" };

/** Seconds after which all is asked for again in any case. */
export const LONGEST = 60;

/** VMs as they were told so many seconds ago; what they have to wait is less by now. */
export function waited(vms, seconds) {
  return vms.map((vm) => ((vm.retry_in ?? null) === null ? vm : { ...vm, retry_in: Math.max(0, vm.retry_in - seconds) }));
}

export class Known {
  #revision = null;
  #heard = -Infinity;
  #answers = {};

  /** What to ask for, by name. An agent before this one names no revision, and is asked at each look. */
  question(health, now) {
    const isKnown = (health?.revision ?? null) !== null && health.revision === this.#revision;
    return isKnown && now - this.#heard <= LONGEST ? {} : QUESTIONS;
  }

  /** Take the answers to it, if it was asked; `health` is the one that was there before. */
  hear(answers, health, now) {
    if (!answers.vms) return;
    this.#answers = Object.fromEntries(Object.keys(QUESTIONS).map((name) => [name, answers[name]]));
    this.#heard = now;
    // Where the agent did not tell all of it, it is asked again at the next look.
    this.#revision = Object.values(this.#answers).some(({ error }) => error) ? null : (health?.revision ?? null);
  }

  /** The answers by name, each a value or the agent's words why there is none. */
  answers(now) {
    const { vms, ...rest } = this.#answers;
    if (!vms.value) return { vms, ...rest };
    return { ...rest, vms: { value: { ...vms.value, vms: waited(vms.value.vms, now - this.#heard) } } };
  }
}
