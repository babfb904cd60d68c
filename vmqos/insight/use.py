# SPDX-License-Identifier: Apache-2.0
"""What the cache is to a VM: it fits, it starves, or it fills without gain.

*With a PMU* the share of references that miss says it, beside how much of its ways the VM holds:

- it misses seldom: what it needs is there, it *fits*;
- it misses nearly always: what it holds is gone before it is wanted again, it *fills without gain*;
- in between, and its ways are full or others press into them: more ways would spare it misses, it *starves*.

*In its own history* a VM that held now more and now less has tried it out. If it fetched as much when it held much, the
cache is no gain to it; if it fetched less, it is. This is better than any level, and it needs no PMU. But it needs the
same work at both times, which without a PMU nobody can check.

*Without a PMU* the traffic alone says that a VM fits, where the lines that it fetches cost it next to no time. Of one
that fetches much, nothing is said until its share of the cache has changed once: a stream and a VM that starves look
alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vmqos.insight import say
from vmqos.insight.advice import Advice, against_filling, for_more
from vmqos.insight.model import Host, Use, Vm, VmVerdict
from vmqos.insight.series import Series, measured, middle

LATELY = 10
"""Samples of which the present is made."""
SELDOM, NEARLY_ALWAYS = 0.05, 0.8
"""Of references."""
FULL = 0.8
"""The share of its ways from which on a VM has them full."""
VARIED = 1.3
"""A VM has tried it out where it held this many times as much at one time as at another."""
CHEAP = 0.05
"""The share of a CPU's time in which lines are waited for, that a VM who fits may have."""
SAME_WORK = 0.10
LINE = 64


def use(host: Host, vm: str, series: Series) -> VmVerdict:
    """What the cache is to one VM now."""
    facts = host.vms[vm]
    way_bytes = {cache: host.caches[cache].size / host.caches[cache].ways for cache in facts.masks}
    room = sum(way_bytes[cache] * mask.bit_count() for cache, mask in facts.masks.items())
    fills = max(way_bytes.values(), default=0)
    held = series.held_on(facts.masks)
    lately = max(series.begins, len(held) - LATELY)
    holds, traffic = middle(held[lately:]), middle(series.bandwidth[lately:])
    references, missed = middle(series.references[-LATELY:]), middle(series.misses[-LATELY:])
    if math.isnan(holds):
        return VmVerdict(vm, Use.UNKNOWN, 0.0, ("what it holds is not counted here",))
    has = f"it holds {say.size(holds)} of the {say.size(room)} that it may fill"
    if references > 0 and not math.isnan(missed):
        found = _with_pmu(series, held, fills, holds >= FULL * room, missed / references, references)
        figures = f"{say.percent(missed / references)} of its references to the cache miss"
    elif math.isnan(traffic):
        return VmVerdict(vm, Use.UNKNOWN, 0.0, (has, "neither its misses nor its traffic are counted here"))
    else:
        found = _without_pmu(series, held, fills, traffic / LINE * host.memory_seconds)
        figures = f"it moves {say.bandwidth(traffic)}; nothing counts misses of the L3 here"
    kind, confidence, why, enough = found
    todo = Advice()
    if kind is Use.STARVES and room > 0:
        ways = max(_ways_for(facts, enough / room), 1 + _ways_for(facts, holds / room))
        todo = for_more(facts, ways, min(host.caches[cache].ways for cache in facts.masks))
    elif kind is Use.FILLS_WITHOUT_GAIN:
        todo = against_filling(facts)
    return VmVerdict(vm, kind, confidence, tuple(filter(None, (has, figures, why, *todo.because))), todo.command)


def _ways_for(facts: Vm, full: float) -> int:
    """How many of its ways a share of them is; nearly all of them are all."""
    ways = max(mask.bit_count() for mask in facts.masks.values())
    return ways if full >= FULL else math.ceil(ways * full)


Found = tuple[Use, float, str, float]
"""The use, the confidence, a sentence why, and the bytes that it once held and was better off with; 0 if not known."""


def _with_pmu(
    series: Series, held: Sequence[float], fills: float, full: bool, ratio: float, references: float
) -> Found:
    if ratio <= SELDOM:
        return Use.FITS, 0.95, "", 0
    tried = None
    if _may_have_tried(held):
        same = [abs(value - references) <= SAME_WORK * references for value in series.references]
        tried = _tried(held, series.misses, same, fills)
    if tried is not None:
        return tried
    if ratio >= NEARLY_ALWAYS:
        return Use.FILLS_WITHOUT_GAIN, 0.8, "", 0
    if full:
        return Use.STARVES, 0.7, "", 0
    return Use.UNKNOWN, 0.3, "it does not fill its ways, so they are not what it lacks, or others press into them", 0


def _without_pmu(series: Series, held: Sequence[float], fills: float, waits: float) -> Found:
    if waits <= CHEAP:
        return Use.FITS, 0.7, f"waiting for it takes at most {say.percent(waits)} of a CPU's time", 0
    tried = _tried(held, series.bandwidth, [True] * len(held), fills) if _may_have_tried(held) else None
    if tried is None:
        return Use.UNKNOWN, 0.0, "whether it would fetch less with more cache can't be told until its share changes", 0
    return tried[0], 0.6 * tried[1], tried[2] + " (if it did the same work all the time)", tried[3]


def _may_have_tried(held: Sequence[float]) -> bool:
    """Whether a VM once held more than at another time. Most never do, and to sort their samples takes long."""
    known = measured(held)
    return bool(known) and max(known) >= VARIED * min(known)


def _tried(held: Sequence[float], fetched: Sequence[float], same: Sequence[bool], fills: float) -> Found | None:
    """What the VM's own history says; ``None`` where it always held about as much, or the answer is not clear.

    :param fills: the bytes of a way. A VM that never held as much fills nothing, and no cap would hold less of it.
    """
    rows = sorted(
        (has, fetches)
        for has, fetches, good in zip(held, fetched, same, strict=True)
        if good and not math.isnan(has) and not math.isnan(fetches)
    )
    third = len(rows) // 3
    if third < 4:
        return None
    little, much = rows[:third], rows[-third:]
    low, high = middle(has for has, _ in little), middle(has for has, _ in much)
    before, after = middle(fetches for _, fetches in little), middle(fetches for _, fetches in much)
    if not high >= VARIED * low or before <= 0:
        return None
    part = say.percent(after / before)
    text = f"with {say.size(high)} it fetched {part} of what it fetched when it held {say.size(low)}"
    if after <= 0.8 * before:
        return Use.STARVES, 0.85, text, high
    return (Use.FILLS_WITHOUT_GAIN, 0.85, text, 0) if high >= fills and 0.9 <= after / before <= 1.1 else None
