# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.campaign.trouble``: play stories for some minutes, or one story again."""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import sys
import time
from pathlib import Path

from tests.campaign.trouble import table, tally
from tests.campaign.trouble.story import MACHINES, Outcome, Story, play, shortest, told


def main() -> int:
    """Read the command line, and play."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.trouble", description=__doc__)
    parser.add_argument("--machine", choices=MACHINES, help="only this machine")
    parser.add_argument("--seed", type=int, help="play this one story")
    parser.add_argument("--only", help="of this story only the events with these numbers, with commas between")
    parser.add_argument("--shorten", action="store_true", help="find the shortest part of it that fails")
    parser.add_argument("--verbose", action="store_true", help="tell what happens, and what the agent logs")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to play stories of new seeds")
    parser.add_argument("--first", type=int, help="the first seed; by chance if it is not given")
    parser.add_argument("--tally", type=Path, help="a file: what came of earlier runs is added, and all is kept there")
    options = parser.parse_args()
    if options.verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stdout)
    machines = [options.machine] if options.machine else list(MACHINES)
    if options.seed is not None:
        only = None if options.only is None else tuple(int(number) for number in options.only.split(",") if number)
        return sum(_play_again(Story(machine, options.seed, only), options.shorten) for machine in machines)
    first = options.first if options.first is not None else random.randrange(1 << 30)
    outcomes = tally.read(options.tally) if options.tally is not None and options.tally.exists() else {}
    outcomes = {machine: outcomes.get(machine, Outcome()) for machine in machines} | outcomes
    last = _campaign(machines, first, options.minutes * 60, outcomes)
    if options.tally is not None:
        tally.write(options.tally, outcomes)
    print(f"seeds {first} to {last - 1}", *table.lines(outcomes), sep="\n")
    return 1 if any(outcome.violations for outcome in outcomes.values()) else 0


def _play_again(story: Story, shorten: bool) -> int:
    if shorten:
        story = shortest(story)
    outcome = play(story)
    print(told(story, outcome))
    return 1 if outcome.violations else 0


def _campaign(machines: list[str], first: int, seconds: float, outcomes: dict[str, Outcome]) -> int:
    """Play until the time is over, a story on each machine in turn; the first seed that was not played."""
    until = time.monotonic() + seconds
    for seed in itertools.count(first):
        if time.monotonic() > until:
            return seed
        story = Story(machines[seed % len(machines)], seed)
        outcome = play(story)
        outcomes[story.machine].add(outcome)
        if outcome.violations:
            print(told(story, outcome), flush=True)
    raise AssertionError


if __name__ == "__main__":
    sys.exit(main())
