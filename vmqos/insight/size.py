# SPDX-License-Identifier: Apache-2.0
"""How many ways a VM needs: what it misses at each number of ways, and from which number on more spare it little.

*The law.*  A cache that keeps what was used last never misses more with more ways (inclusion; Mattson, 1970). So the
share of references that miss can only fall from one number of ways to the next. The VM is let have one more way after
the other, and its misses are counted with each. The curve is the one nearest to what was counted that never rises.

*Up, and never down.*  A mask says where a VM may bring lines in, and not where it may find them. A VM that loses a way
finds its lines there until somebody else takes them, so it would seem to need fewer ways than it does. With more ways
than it was promised it loses nothing by being tried.

*When to count.*  A new way is empty. What is missed while it fills says nothing of the way. So samples count from when
the VM holds no more than before, or misses no less.

*The knee* is the fewest ways with which it misses at most :data:`ENOUGH` of its references more than with all that were
tried.

*Without a PMU* the traffic with memory stands for the misses: it says where the curve falls and how steeply, and not
how near to 0 it is.

*What can't be known*: what it would miss with fewer ways than it has been promised; and anything of a VM whose work
changes while it is tried, by more than :data:`SAME_WORK`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmqos.insight.model import Counts, Sample
from vmqos.insight.series import middle

FEWEST = 4
"""Samples that are counted with each number of ways."""
MOST = 60
"""Samples after which a VM gets the next way, whether it still holds more from one to the next or not."""
STILL = 0.02
"""Of what it holds: a VM that holds no more than this more than :data:`FEWEST` samples before has settled."""
SURE = 0.005
"""Of its references, or of its traffic: it is counted until the mean of what it misses is known to this."""
ENOUGH = 0.05
"""Of its references, or of its traffic where there is no PMU. Ways that spare a VM less are not worth their price."""
SAME_WORK = 0.10
"""References per instruction of the same work differ by no more than this part."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a VM did with so many ways.

    :ivar missed: the share of its references that missed; NaN without a PMU.
    :ivar traffic: bytes a second from and to memory; NaN where nothing counts them.
    :ivar cycles: for an instruction; NaN without a PMU.
    :ivar work: references per instruction; NaN without a PMU.
    :ivar held: bytes.
    """

    ways: int
    missed: float
    traffic: float
    cycles: float
    work: float
    held: float


@dataclass(frozen=True, slots=True)
class Size:
    """How much of the cache a VM needs.

    :ivar curve: by ways, the share of its references that it misses, where the VM had so many ways. Without a PMU its
        traffic, as a share of that with the fewest ways.
    :ivar slower: by ways, how many times as long its work takes as with all that were tried; empty without a PMU.
    :ivar knee: the fewest ways that are nearly as good as all that were tried.
    :ivar is_counted: whether there is a PMU.
    :ivar is_steady: whether its work stayed the same; else the curve is not to be trusted.
    """

    curve: Mapping[int, float]
    slower: Mapping[int, float]
    knee: int
    is_counted: bool
    is_steady: bool

    @property
    def is_least(self) -> bool:
        """Whether the VM may need more: the last way that it was tried with still spared it much, and could again."""
        most = max(self.curve)
        is_at_end = self.knee == most > min(self.curve)
        return is_at_end and not (self.is_counted and self.curve[most] <= ENOUGH)


def is_enough(samples: Sequence[Sample]) -> bool:
    """Whether a VM that got a way has been watched for long enough.

    :param samples: since it got the way, the oldest first.
    """
    if len(samples) >= MOST:
        return True
    settled = samples[_settled(samples) :]
    if len(settled) < FEWEST:
        return False
    missed = [_missed(counts) for counts in map(_counts, settled) if counts is not None]
    traffic = [one.bandwidth for one in settled if one.bandwidth is not None]
    if len(missed) < FEWEST:
        return len(traffic) < FEWEST or _error(traffic) <= SURE * sum(traffic) / len(traffic)
    return _error(missed) <= SURE


def point(ways: int, samples: Sequence[Sample]) -> Point:
    """What a VM did since it had settled with so many ways.

    :param samples: since it got them, the oldest first; at least one.
    """
    # A VM that never settles still holds more at the end than ever before: that is nearest to what it would be.
    settled = samples[min(_settled(samples), max(0, len(samples) - FEWEST)) :]
    counted = [counts for counts in map(_counts, settled) if counts is not None]
    instructions, references = (sum(getattr(one, name) for one in counted) for name in ("instructions", "references"))
    return Point(
        ways,
        sum(one.misses for one in counted) / references if references else 0.0 if counted else math.nan,
        middle(math.nan if one.bandwidth is None else one.bandwidth for one in settled),
        sum(one.cycles for one in counted) / instructions if instructions else math.nan,
        references / instructions if instructions else math.nan,
        middle(_held(one) for one in settled),
    )


def size(points: Sequence[Point]) -> Size:
    """The curve, and its knee.

    :param points: for different ways; at least one.
    :raises ValueError: if a figure that the curve follows from is no number, or without end; it names the figure.
    """
    tried = sorted(points, key=lambda one: one.ways)
    is_counted = not any(math.isnan(one.missed) for one in tried)
    _check(tried, ("missed", "cycles", "work") if is_counted else ("traffic",))
    first = tried[0].traffic
    values = [one.missed if is_counted else one.traffic / first if first else 0.0 for one in tried]
    curve = dict(zip((one.ways for one in tried), never_rising(values), strict=True))
    work = middle(one.work for one in tried)
    cycles = never_rising([one.cycles for one in tried]) if is_counted else []
    return Size(
        curve,
        {one.ways: took / cycles[-1] for one, took in zip(tried, cycles, strict=True)} if cycles and cycles[-1] else {},
        knee(curve),
        is_counted,
        not is_counted or all(abs(one.work - work) <= SAME_WORK * work for one in tried),
    )


def knee(curve: Mapping[int, float]) -> int:
    """The fewest ways with which at most :data:`ENOUGH` more is missed than with all."""
    least = curve[max(curve)]
    return min(ways for ways, missed in curve.items() if missed <= least + ENOUGH)


def _check(points: Sequence[Point], names: Sequence[str]) -> None:
    for one in points:
        for name in names:
            value = getattr(one, name)
            if not math.isfinite(value):
                raise ValueError(f"{name} with {one.ways} ways is {value}: a curve can't be drawn through that")


def _settled(samples: Sequence[Sample]) -> int:
    """The index of the first sample from which on the VM holds no more; all of them, if it never does."""
    held = [_held(one) for one in samples]
    for at in range(FEWEST, len(held)):
        if held[at] <= (1 + STILL) * held[at - FEWEST]:
            return at - FEWEST + 1
    return len(samples)


def _held(sample: Sample) -> float:
    return sum(sample.occupancy.values()) if sample.occupancy else math.nan


def _counts(sample: Sample) -> Counts | None:
    counts = sample.counts
    return counts if counts is not None and counts.references > 0 else None


def _missed(counts: Counts) -> float:
    return counts.misses / counts.references


def _error(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def never_rising(values: Sequence[float]) -> list[float]:
    """The nearest values that never rise (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, number = value, 1
        while pools and pools[-1][0] / pools[-1][1] < total / number:
            more, of = pools.pop()
            total, number = total + more, number + of
        pools.append((total, number))
    return [total / number for total, number in pools for _ in range(number)]
