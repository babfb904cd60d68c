# SPDX-License-Identifier: Apache-2.0
"""What an RMID would miss with each number of ways; that it is counted right is in ``test_against_reference.py``."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from tests.kernel.cachemodel import log
from tests.kernel.cachemodel.counts import Curve
from tests.kernel.cachemodel.library import Access, Extra, Geometry, Kind, model

WAYS = 11
GEOMETRY = Geometry(l2_sets=64, l2_ways=2, l3_sets=192, l3_ways=WAYS)
COUNTED = Extra(curves=4)
ALL = (1 << WAYS) - 1


def _trace(seed: int, rmid: int, length: int = 20_000) -> list[Access]:
    """Some lines are asked for much more often than others."""
    chance = random.Random(seed)
    return [
        Access(rmid << 30 | int(6_000 * chance.random() ** 3), chance.choice(list(Kind)), ALL, cpu=rmid, rmid=rmid)
        for _ in range(length)
    ]


def _with_mask(trace: list[Access], mask: int) -> list[Access]:
    return [Access(access.line, access.kind, mask, cpu=access.cpu, rmid=access.rmid) for access in trace]


@pytest.mark.parametrize("sample", [0, 3])
def test_the_curve_is_what_is_missed_with_each_number_of_ways(replay: ctypes.CDLL, sample: int) -> None:
    geometry = Geometry(64, 2, 192, WAYS, sample)
    with model(replay, geometry, cpus=2, extra=COUNTED) as ours:
        places = ours.places(sample)
        mine, other = ([access for access in _trace(n, n) if access.line % 64 in places] for n in range(2))
        # The curve does not depend on what the RMID has, nor on who is beside it.
        ours.run(chain.from_iterable(zip(_with_mask(mine, 0x3), _with_mask(other, 0x7), strict=False)))
        curve, count = ours.curve(0), min(len(mine), len(other))
    missed = []
    for ways in range(WAYS + 1):
        with model(replay, geometry) as alone:
            alone.run(_with_mask(mine[:count], (1 << ways) - 1))
            counts = alone.counts()
            missed.append(counts.data.memory + counts.fetch.memory)
    assert [curve.misses(ways) for ways in range(WAYS + 1)] == missed
    assert missed[0] == curve.accesses > missed[3] > missed[WAYS]


def test_lines_that_others_hold_take_no_ways_of_ones_own(replay: ctypes.CDLL) -> None:
    """As with the host's kernel, which works for a VM under the VM's RMID, and for others under theirs."""
    chance, theirs, ours_from = random.Random(3), 900, 5_000

    def trace() -> list[Access]:
        """Most of what the RMID 0 accesses is its own; the rest is what the RMID 1 holds, and often uses."""
        accesses = []
        for _ in range(30_000):
            line = ours_from + int(1_500 * chance.random() ** 2) if chance.random() < 0.7 else chance.randrange(theirs)
            accesses.append(Access(line, l3_mask=0, cpu=0, rmid=0))
            accesses.append(Access(chance.randrange(theirs), l3_mask=0x7F0, cpu=1, rmid=1))
        return accesses

    accesses, curve, missed = trace(), Curve((0,) * WAYS, 0), {}
    for ways in range(1, 5):
        mine = (1 << ways) - 1
        with model(replay, GEOMETRY, cpus=2, extra=COUNTED) as one:
            one.run(replace(access, l3_mask=access.l3_mask or mine) for access in accesses)
            curve, counts = one.curve(0), one.counts(0)
        missed[ways] = counts.data.memory
        assert abs(curve.misses(ways) - missed[ways]) <= 0.02 * curve.accesses, (ways, curve.misses(ways), missed)
    assert missed[1] > missed[4] + 0.2 * curve.accesses


def test_a_flush_makes_all_lines_strange(replay: ctypes.CDLL) -> None:
    lines = [Access(line, rmid=1) for line in range(192)]
    with model(replay, GEOMETRY, extra=COUNTED) as ours:
        ours.run(lines)
        ours.flush()
        ours.run(lines)
        assert ours.curve(1) == Curve((0,) * WAYS, 384)


def test_no_more_rmids_than_asked_for_have_a_curve(replay: ctypes.CDLL) -> None:
    with model(replay, GEOMETRY, rmids=512, extra=Extra(curves=2)) as ours:
        for rmid in (400, 3, 511, 400):
            ours.run([Access(rmid * 1_000 + line, rmid=rmid) for line in range(192)])
        assert [ours.curve(rmid).accesses for rmid in (400, 3, 511)] == [384, 192, 0]


def test_the_file_of_counts_has_the_curves(replay: ctypes.CDLL, tmp_path: Path) -> None:
    with model(replay, GEOMETRY, cpus=2, extra=COUNTED) as ours:
        ours.run(_trace(1, 1))
        for rmid in range(2):
            ours._library.hierarchy_executed(ours._handle, 0, rmid, ctypes.c_uint64(1))
        ours.report(tmp_path / "counts")
        expected = {0: None, 1: ours.curve(1)}
    assert {snapshot.rmid: snapshot.curve for snapshot in log.read(tmp_path / "counts")} == expected
