# SPDX-License-Identifier: Apache-2.0
"""How good estimates of counters are that the kernel gives turns, in a guest that its own machine lets wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

COUNTERS = 5
"""How many count at once what the processor can count for one of them."""

TOGETHER, EACH = 0.01, 0.1
"""What all of them together, and each of them by itself, may be wrong by."""

TRIES = 8
"""How often it is tried to have each right."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one counter says of all the time.

    :ivar instructions: in all the time, by what it counted in its turns.
    :ivar share: of the time that it had, above 0 and up to 1.
    """

    instructions: float
    share: float


def hold(count: Callable[[], Sequence[Estimate]], truth: float) -> None:
    """Hold what several counters say to what was executed.

    A busy machine lets the guest wait, now in the turn of one and now in that of another: one says too little then, and
    the others too much. What each counted in its share of the time is together all that was executed, each time. One
    that is wrong by more than its turns is so each time; so each must be right in one of some tries.

    :param count: count the same again.
    :param truth: the instructions that are executed each time.
    """
    seen = []
    for _ in range(TRIES):
        found = count()
        counted = sum(one.instructions * one.share for one in found)
        assert counted / sum(one.share for one in found) == pytest.approx(truth, rel=TOGETHER), found
        seen.append([one.instructions / truth for one in found])
        if all(abs(one - 1) <= EACH for one in seen[-1]):
            return
    pytest.fail(f"in none of {TRIES} tries each estimate was within {EACH:.0%} of the truth: {seen}")
