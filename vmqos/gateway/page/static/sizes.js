// SPDX-License-Identifier: Apache-2.0
// How many ways VMs need, as `vmqos size` found it last and the agent remembers it.

import { Refused, Silent, ask } from "./agent.js";

const QUESTION = "v1/sizes";

/** Seconds until the agent is asked again: a curve is found once in a while. */
const PAUSE = 60;

export class Sizes {
  #known = new Map();
  #unfolded = new Set();
  #due = 0;
  #asking = false;

  /** What was found of a VM; null where nothing was. */
  of(uuid) {
    return this.#known.get(uuid) ?? null;
  }

  /**
   * Ask the agent where a VM was unfolded since the last call, or one is unfolded and the agent was last asked a minute ago.
   *
   * @param unfolded the UUIDs of the VMs that are unfolded.
   * @param heard called after the answer.
   */
  async ask(unfolded, now, heard) {
    const isNew = unfolded.some((uuid) => !this.#unfolded.has(uuid));
    this.#unfolded = new Set(unfolded);
    if (!unfolded.length || this.#asking || (!isNew && now < this.#due)) return;
    this.#asking = true;
    this.#due = now + PAUSE;
    try {
      const { sizes } = await ask(QUESTION);
      this.#known = new Map(sizes.map((one) => [one.uuid, one]));
      heard();
    } catch (error) {
      // An agent before this one refuses the question. The page's loop hears of the silence, too, and tells it.
      if (!(error instanceof Silent || error instanceof Refused)) throw error;
    } finally {
      this.#asking = false;
    }
  }
}
