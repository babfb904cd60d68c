# SPDX-License-Identifier: Apache-2.0
"""Whether a VM is slower than it was, or slower than others of its flavor.

*Against its own past.*  Cycles per instruction say how slow a program is, but they also change with what it does. So
only samples of the same work are compared: those with about as many references per instruction as now. The past is
the faster half of them, for in the slower half it may have suffered already.

*Against its flavor.*  VMs of one flavor mostly do alike. One that takes many more cycles than the middle one of those
who, by their references per instruction, do the same work, suffers (CPI2, EuroSys 2013, has done so at Google). It
needs no past, so it finds what was there when the history began.

*The cause*: more misses per instruction than then, or than there: the cache. As many misses, and memory near its limit:
memory bandwidth. Neither: what slows it lies elsewhere (a shared core, the clock), and no neighbour's cache is blamed.

*What can't be known*: anything without a PMU. Traffic says how much a VM fetches, not how fast it gets on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vmqos.insight.model import Cause, Host, Suffering
from vmqos.insight.series import Series, measured, middle

LATELY = 5
"""Samples of which the present is made."""
FEWEST = 10
"""Samples of the same work that a past is made of."""
SLOWER = 1.15
SLOWER_THAN_OTHERS = 1.25
OTHERS = 2
"""VMs of the same flavor and work, without which there is no middle one."""
SAME_WORK = 0.10
MORE = 1.1
NEAR = 0.8


class Present(NamedTuple):
    """What a VM's tasks did lately, for an instruction; NaN where that was not counted."""

    references: float
    cycles: float
    misses: float


def present(series: Series) -> Present:
    """A VM's present: every other VM of its flavor is held against it."""
    return Present(*(middle(column[-LATELY:]) for column in (series.references, series.cycles, series.misses)))


def fastest(host: Host, presents: Mapping[str, Present]) -> dict[str, float]:
    """The fewest cycles that a VM of each flavor takes for an instruction; without flavors of which none is counted."""
    found: dict[str, float] = {}
    for vm, (_, cycles, _) in presents.items():
        if not math.isnan(cycles):
            flavor = host.vms[vm].flavor
            found[flavor] = min(cycles, found.get(flavor, cycles))
    return found


def sufferings(
    host: Host, vm: str, series: Mapping[str, Series], presents: Mapping[str, Present], fewest: Mapping[str, float]
) -> tuple[Suffering, ...]:
    """How a VM suffers; empty where it does not, or where there is no PMU.

    :param presents: of all VMs of ``series``.
    :param fewest: the fewest cycles of each flavor (:func:`fastest`).
    """
    work, cycles, misses = presents[vm]
    if math.isnan(work) or math.isnan(cycles):
        return ()
    now = cycles, misses
    full = _is_full(host, vm, series)
    beside_flavor = None
    # Most VMs are nearly as fast as the fastest one, and to find the middle one takes long.
    if now[0] >= SLOWER_THAN_OTHERS * fewest[host.vms[vm].flavor]:
        beside_flavor = _beside_flavor(host, vm, presents, work, now, full)
    return tuple(one for one in (_beside_past(series[vm], work, now, full), beside_flavor) if one is not None)


def _beside_past(own: Series, work: float, now: tuple[float, float], full: bool) -> Suffering | None:
    before = measured(own.cycles[:-LATELY])
    if not before or now[0] < SLOWER * min(before):
        return None
    past = sorted(
        (cycles, misses)
        for cycles, references, misses in zip(
            own.cycles[:-LATELY], own.references[:-LATELY], own.misses[:-LATELY], strict=True
        )
        if abs(references - work) <= SAME_WORK * work and not math.isnan(cycles)
    )
    if len(past) < FEWEST:
        return None
    faster = past[: len(past) // 2]
    then = middle(cycles for cycles, _ in faster), middle(misses for _, misses in faster)
    lately = sum(value > SLOWER * then[0] for value in own.cycles[-LATELY:])
    if now[0] < SLOWER * then[0] or lately < LATELY - 1:
        return None
    return _told("own past", now, then, full, min(0.9, 0.5 + len(past) / 100))


def _beside_flavor(
    host: Host, vm: str, presents: Mapping[str, Present], work: float, now: tuple[float, float], full: bool
) -> Suffering | None:
    flavor = host.vms[vm].flavor
    others = []
    for other, (references, cycles, misses) in presents.items() if flavor else ():
        if other != vm and host.vms[other].flavor == flavor and abs(references - work) <= SAME_WORK * work:
            others.append((cycles, misses))
    if len(others) < OTHERS:
        return None
    there = middle(cycles for cycles, _ in others), middle(misses for _, misses in others)
    if now[0] < SLOWER_THAN_OTHERS * there[0]:
        return None
    return _told("flavor", now, there, full, min(0.85, 0.4 + 0.1 * len(others)))


def _told(beside: str, now: tuple[float, float], then: tuple[float, float], full: bool, confidence: float) -> Suffering:
    cause = Cause.CACHE if now[1] > MORE * then[1] else Cause.BANDWIDTH if full else Cause.NEITHER
    return Suffering(
        now[0] / then[0],
        beside,
        cause,
        confidence,
        (
            f"it takes {now[0]:.2f} cycles for an instruction, {then[0]:.2f} "
            + ("before at the same work" if beside == "own past" else "is the middle of its flavor at the same work"),
            f"it misses {1000 * now[1]:.2f} times in 1 000 instructions, there {1000 * then[1]:.2f} times",
        ),
    )


def _is_full(host: Host, vm: str, series: Mapping[str, Series]) -> bool:
    """Whether the memory behind the VM's caches gives nearly all that it can; no, where that is not known."""
    caches = host.vms[vm].masks
    limits = [host.caches[cache].bandwidth for cache in caches]
    if None in limits or not limits:
        return False
    near = [of for other, of in series.items() if any(cache in host.vms[other].masks for cache in caches)]
    moved: Sequence[float] = [middle(of.bandwidth[-LATELY:]) for of in near]
    whole = sum(limit for limit in limits if limit is not None)
    return sum(value for value in moved if not math.isnan(value)) >= NEAR * whole
