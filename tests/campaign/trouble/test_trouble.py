# SPDX-License-Identifier: Apache-2.0
"""Random trouble: on each machine as many stories as fit into its share of the time. ``__main__.py`` plays more."""

from __future__ import annotations

import itertools
import os
import random
import time

import pytest

from tests.campaign.trouble.story import MACHINES, Outcome, Story, play, shortest, told

SECONDS = 12.0
"""For each machine."""
FEWEST = 5
"""Stories: on a machine that is busy, too."""

NEW = os.environ.get("VMQOS_TEST_EXAMPLES", "new") == "new"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_that_happens_breaks_a_promise(machine: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes.setdefault(machine, Outcome())
    until = time.monotonic() + SECONDS
    first = random.randrange(1 << 30) if NEW else 1
    for seed in itertools.count(first):
        if time.monotonic() > until and outcome.stories >= FEWEST:
            break
        one = play(story := Story(machine, seed))
        outcome.add(one)
        if one.violations:
            short = shortest(story, seconds=60.0)
            pytest.fail(f"{told(story, one)}\nthe shortest part that fails: {short.command}")
