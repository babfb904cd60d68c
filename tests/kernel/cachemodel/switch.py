# SPDX-License-Identifier: Apache-2.0
"""The model of the caches from inside a guest: turning it on and off, and reading it.

Underneath are registers that the plugin keeps (``tests/kernel/plugin/control.h``, ``window.h``). ``cpu`` says whose L3
is meant.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kernel.cachemodel.counts import MAX_WAYS, NUMBERS, Counts, Curve
from tests.kernel.inside import msr

TURN = 0x52440020
OFF, ON, EMPTY, REPORT = range(4)
KNOBS = {
    "sample": 0x52440021,
    "l2size": 0x52440022,
    "l3_ns": 0x52440023,
    "memory_ns": 0x52440024,
    "bandwidth": 0x52440025,
    "mba_unit": 0x52440026,
    "evictions": 0x52440027,
    "curves": 0x52440028,
    "channel": 0x52440029,
}
COUNTS = 0x52450000
WAYS = 0x52460000
DISTANCES = 0x52470000
EVICTIONS = 0x52500000
MOST_CYCLES = 0x52441000
"""And so on: one of each RMID (``tests/kernel/plugin/control.h``)."""
PATIENCE = 60.0
"""Seconds in which all CPUs come to a stand for a turn; it takes milliseconds."""


def knob(name: str) -> int:
    """How a knob is set: ``sample``, ``l2size`` and others; see :func:`turn_on`."""
    return msr.read(0, KNOBS[name])


def turn_on(**knobs: int) -> None:
    """Have the caches modelled, from empty ones on.

    :param knobs: ``sample`` (1 of ``2 ** sample`` sets), ``l2size`` (bytes), ``l3_ns`` and ``memory_ns`` (how long a
        CPU stands still for a line), ``bandwidth`` and ``mba_unit`` (what memory bandwidth allocation means, in bytes a
        second), ``evictions`` (count who evicted whom: 1, or not: 0), ``curves`` (of how many RMIDs to count what they
        would miss with each number of ways), ``channel`` (bytes a second between an L3 and memory, which its CPUs
        share; 0: any number); ``options.c`` has the ranges. One that is not given stays as it is.
    :raises ValueError: for a value out of range.
    """
    for name, value in knobs.items():
        msr.write(0, KNOBS[name], value)
        if knob(name) != value:
            raise ValueError(f"{name}={value} is out of range: see tests/kernel/plugin/options.c")
    _turn(ON)


def turn_off() -> None:
    """Go back to counters that are made up."""
    _turn(OFF)


def empty() -> None:
    """Empty all caches, without writing anything back."""
    _turn(EMPTY)


def is_on() -> bool:
    """Whether the caches are modelled."""
    return bool(msr.read(0, TURN) & 1)


@contextmanager
def on(**knobs: int) -> Iterator[None]:
    """Have the caches modelled for a while; knobs are put back afterwards. See :func:`turn_on`."""
    before = {name: knob(name) for name in knobs}
    turn_on(**knobs)
    try:
        yield
    finally:
        turn_off()
        for name, value in before.items():
            msr.write(0, KNOBS[name], value)


def snapshot() -> None:
    """Have the counts of all RMIDs written to the file that stays (:mod:`tests.kernel.cachemodel.log`)."""
    msr.write(0, TURN, REPORT)


def counts(cpu: int, rmid: int) -> Counts:
    """What was counted for an RMID in this CPU's domain since boot."""
    return Counts.of([msr.read(cpu, COUNTS + NUMBERS * rmid + which) for which in range(NUMBERS)])


def held_by_way(cpu: int, rmid: int, ways: int) -> list[int]:
    """Bytes that an RMID holds in each way of this CPU's L3."""
    return [msr.read(cpu, WAYS + 32 * rmid + way) for way in range(ways)]


def evicted(cpu: int, *, by: int, of: int, rmids: int) -> int:
    """How many lines of one RMID left this CPU's L3 for lines that another one brought in.

    Counted since the model was turned on with the knob ``evictions``; always 0 without it.

    :param rmids: how many RMIDs the machine has (``info/L3_MON/num_rmids``).
    """
    return msr.read(cpu, EVICTIONS + rmids * by + of)


def curve(cpu: int, rmid: int, ways: int) -> Curve:
    """What an RMID would have missed in this CPU's L3 with each number of ways for itself.

    Counted since the model was turned on with the knob ``curves``; without it, there are no accesses in it.

    :param ways: how many the L3 has.
    """
    return Curve.of([msr.read(cpu, DISTANCES + 64 * rmid + distance) for distance in range(MAX_WAYS + 1)], ways)


def stand_still_after(cpu: int, rmid: int, cycles: int) -> None:
    """Have programs that run under an RMID on CPUs of this domain stand still once it has had so many cycles.

    All but still: they go on by some accesses each millisecond. The kernel goes on as ever, so it can stop them. Cycles
    are those of the performance counters (``tests/kernel/plugin/pmu.h``), since boot.

    :param cycles: 0: they never stand still.
    """
    msr.write(cpu, MOST_CYCLES + rmid, cycles)


def rmid_of(group: Path) -> int:
    """The RMID of a control group or monitoring group, where resctrl is mounted with ``debug``."""
    return int((group / "mon_hw_id").read_text())


def _turn(how: int) -> None:
    turns = msr.read(0, TURN) >> 8
    msr.write(0, TURN, how)
    deadline = time.monotonic() + PATIENCE
    while msr.read(0, TURN) >> 8 == turns:
        if time.monotonic() > deadline:
            raise TimeoutError("the emulated CPUs did not come to a stand for the model of the caches")
        time.sleep(0.001)
