# SPDX-License-Identifier: Apache-2.0
"""What a VM misses with fewer ways, as its past tells it: others pressed on it, and it held less. Nothing is tried.

*The law.*  A VM that shares ways with others holds more of them at one time and less at another. While it holds as much
as fits in so many ways, it misses about what it would miss with so many of its own, if it would fill more than it can
have: then what it holds is the latest of what it used, as with ways of its own. So the points of the curve are pairs of
what it held and what it missed meanwhile.

*Where that is not so.*  A VM that holds all it wants holds less than the ways that it needs: a page lies in some of
the cache's sets only, so ways of its own are full in some sets before they are in others. Such a VM misses nothing
while it holds what fits in two ways, and with two ways of its own would miss half of its references. So nothing is said
of a VM that was not seen to fill nearly all that it may fill, and to miss even then. This leaves those that no number
of ways satisfies here: streams, and data much larger than the cache. Of these it tells whether ways are of use.

*When to count.*  While it gains or loses lines fast, what it holds is not yet, or no longer, what it uses. So a sample
counts if the VM held about as much at the sample before, and if its work is that of most samples.

*What can't be known*: anything of less than it was seen to hold, and of little. With less than :data:`LEAST` of what it
may fill, the lines that a VM uses most stay by their use alone, and it misses less than with ways of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vmqos.insight.model import Counts, Sample
from vmqos.insight.series import middle
from vmqos.insight.size import ENOUGH, FEWEST, SAME_WORK, knee, never_rising

FULL = 0.99
"""Of what it may fill: a VM that holds this much has filled it. Measured (``tests.worth``): with 0.98, walks through
memory a fifth larger than the cache were told wrong by up to 7 of 100 references."""
LEAST = 0.3
"""Of what it may fill: with less, what is missed is not what it would be with ways of its own."""
STILL = 0.02
"""Of what it holds: a VM that holds by no more than this more, or less, than at the sample before holds as much."""
NEAR = 0.5
"""Ways: so far from a number of ways is what a sample of that number may hold."""


@dataclass(frozen=True, slots=True)
class Passive:
    """What the past of a VM tells of the ways that it needs.

    :ivar curve: by ways, the share of its references that it missed while it held as much as fits in so many; empty
        where its past tells nothing.
    :ivar samples: by ways, how many samples that was counted in.
    :ivar least: what it held least and ``most`` what it held most, in ways.
    :ivar why_not: why its past tells nothing, in a few words; empty where it tells something.
    """

    curve: Mapping[int, float]
    samples: Mapping[int, int]
    least: float
    most: float
    why_not: str = ""

    @property
    def knee(self) -> int:
        """The fewest ways of the curve that are nearly as good as all of it; there has to be one."""
        return knee(self.curve)


def passive(samples: Sequence[Sample], ways: int, way_bytes: float) -> Passive:
    """What a VM's samples tell.

    :param samples: the oldest first.
    :param ways: how many it may fill, together with others.
    :param way_bytes: bytes in a way, of all caches that it runs on.
    """
    rows = [(one, _held(one) / way_bytes) for one in samples if one.occupancy]
    held = [has for _, has in rows]
    least, most = min(held, default=0.0), max(held, default=0.0)
    if len(rows) >= FEWEST and all(one.counts is None for one, _ in rows):
        return Passive({}, {}, least, most, "nothing counts its misses of the L3")
    counted = [
        (has, one.counts)
        for (_, before), (one, has) in pairwise(rows)
        if one.counts is not None and one.counts.references > 0 and abs(has - before) <= STILL * has
    ]
    work = middle(_work(counts) for _, counts in counted)
    same = [(has, counts) for has, counts in counted if abs(_work(counts) - work) <= SAME_WORK * work]
    full = [counts for has, counts in same if has >= FULL * ways]
    if why_not := _why_not(len(counted), len(same), full, most / ways):
        return Passive({}, {}, least, most, why_not)
    of_ways = {
        number: near
        for number in range(math.ceil(LEAST * ways), ways + 1)
        if len(near := [counts for has, counts in same if abs(has - number) <= NEAR]) >= FEWEST
    }
    if len(of_ways) < 2:
        return Passive({}, {}, least, most, "it held about as much all the time")
    curve = dict(zip(of_ways, never_rising([_missed(near) for near in of_ways.values()]), strict=True))
    return Passive(curve, {number: len(near) for number, near in of_ways.items()}, least, most)


def _why_not(counted: int, same: int, full: Sequence[Counts], filled: float) -> str:
    """Why nothing is told; empty where something may be.

    :param counted: in how many samples it held as much as before, and ``same`` in how many of these it did its work.
    :param full: what it did while it filled all.
    :param filled: the greatest part of what it may fill that it held.
    """
    if counted < FEWEST:
        return "too few samples count misses of the L3 while it holds about as much as before"
    if same < counted / 2:
        return "its work changes: its references for each instruction differ from sample to sample"
    if len(full) < FEWEST:
        return (
            f"it held {100 * min(filled, 1.0):.0f} % of what it may fill at most, so what it held may be all that it "
            "wants, and then what it misses does not tell of ways"
        )
    if _missed(full) <= ENOUGH:
        return (
            "it misses next to nothing when it fills all, so what it holds may be more than it wants, and then what it "
            "misses does not tell of ways"
        )
    return ""


def _held(sample: Sample) -> float:
    return sum(sample.occupancy.values())


def _work(counts: Counts) -> float:
    return counts.references / counts.instructions if counts.instructions > 0 else 0.0


def _missed(counts: Sequence[Counts]) -> float:
    return sum(one.misses for one in counts) / sum(one.references for one in counts)
