# SPDX-License-Identifier: Apache-2.0
"""What dividing a cache by ways does, in the model: the rules of CAT, and closed forms."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.cachemodel.counts import LINE
from tests.kernel.cachemodel.library import Access, From, Geometry, Kind, Model, model

SETS, WAYS = 192, 11
ALL = (1 << WAYS) - 1
GEOMETRY = Geometry(l2_sets=64, l2_ways=1, l3_sets=SETS, l3_ways=WAYS)
WAY = SETS * LINE
"""Bytes of a way."""

masks = st.integers(0, ALL)


def walk(lines: Iterable[int], mask: int = ALL, *, cpu: int = 0, rmid: int = 0) -> list[Access]:
    """Loads, one after the other."""
    return [Access(line, Kind.LOAD, mask, cpu=cpu, rmid=rmid) for line in lines]


@pytest.mark.parametrize("sample", [0, 2])
@pytest.mark.parametrize("ways", [1, 2, 3, 5, 8, 11])
def test_random_accesses_miss_as_the_closed_form_says(replay: ctypes.CDLL, ways: int, sample: int) -> None:
    """Of a working set that is larger than the ways, each line is as likely to be held as there is room."""
    geometry = Geometry(l2_sets=64, l2_ways=1, l3_sets=1024, l3_ways=WAYS, sample=sample)
    working_set = 13 * 1024
    chance = random.Random(ways)
    with model(replay, geometry) as ours:
        places = ours.places(sample)
        lines = [line for line in range(working_set) if line % 64 in places]
        ours.run(walk(lines * 2, (1 << ways) - 1))
        warm = ours.counts()
        ours.run(walk((chance.choice(lines) for _ in range(60_000)), (1 << ways) - 1))
        counts = ours.counts() - warm
    # What the L2 holds in front is another working set's share: 64 lines of one way.
    expected = 1 - ways * 1024 / working_set
    assert counts.l3_miss_ratio == pytest.approx(expected, abs=0.012)


@settings(deadline=None, max_examples=25)
@given(mask=masks, other=masks, seed=st.integers(0, 1 << 30))
def test_no_class_holds_anything_outside_of_its_ways_nor_more_than_they_have(
    replay: ctypes.CDLL, mask: int, other: int, seed: int
) -> None:
    chance = random.Random(seed)
    with model(replay, GEOMETRY, cpus=2) as ours:
        for _ in range(2):
            ours.run(walk((chance.randrange(10_000) for _ in range(2_500)), mask, rmid=1))
            ours.run(walk((10_000 + chance.randrange(10_000) for _ in range(2_500)), other, cpu=1, rmid=2))
            for rmid, allowed in ((1, mask), (2, other)):
                held = ours.held_by_way(WAYS, rmid)
                assert all(not held[way] for way in range(WAYS) if not allowed >> way & 1)
                assert max(held) <= WAY
                assert sum(held) == ours.counts(rmid).occupancy <= allowed.bit_count() * WAY
            assert all(sum(ours.held_by_way(WAYS, rmid)[way] for rmid in (1, 2)) <= WAY for way in range(WAYS))


@settings(deadline=None, max_examples=30)
@given(mask=st.integers(1, ALL), other=masks)
def test_what_is_held_is_hit_whatever_ways_a_class_may_fill(replay: ctypes.CDLL, mask: int, other: int) -> None:
    lines = range(SETS * mask.bit_count())
    with model(replay, GEOMETRY, cpus=2) as ours:
        ours.run(walk(lines, mask, rmid=1))
        assert set(ours.run(walk(lines, other, cpu=1, rmid=2))) == {From.L3}
        assert ours.counts(1).occupancy == len(lines) * LINE
        assert ours.counts(2).occupancy == 0


def test_a_shrunk_mask_evicts_nothing_at_once(replay: ctypes.CDLL) -> None:
    lines = range(SETS * WAYS)
    with model(replay, GEOMETRY, cpus=2) as ours:
        ours.run(walk(lines))
        assert set(ours.run(walk(lines, 1, cpu=1))) == {From.L3}
        assert ours.held_by_way(WAYS) == [WAY] * WAYS
        # Only what it brings in anew takes places, and those in the one way it may still fill.
        ours.run(walk(range(100_000, 100_000 + 3 * SETS), 1, rmid=1))
        assert ours.held_by_way(WAYS) == [0] + [WAY] * (WAYS - 1)
        assert ours.held_by_way(WAYS, 1) == [WAY] + [0] * (WAYS - 1)


def test_a_stream_spares_the_ways_of_others_and_nothing_else(replay: ctypes.CDLL) -> None:
    mine, stream = range(4 * SETS), range(50_000, 50_000 + 40 * SETS)
    for mask, spared in ((ALL & ~0xF, True), (ALL, False)):
        with model(replay, GEOMETRY, cpus=2) as ours:
            ours.run(walk(mine, 0xF, rmid=1))
            ours.run(walk(stream, mask, cpu=1, rmid=2))
            assert (ours.counts(1).occupancy == len(mine) * LINE) is spared
            before = ours.counts(1)
            ours.run(walk(mine, 0xF, rmid=1))
            # What the L2 still has does not ask the L3.
            assert (ours.counts(1) - before).l3_miss_ratio == (0.0 if spared else 1.0)


def test_a_class_without_ways_brings_nothing_in(replay: ctypes.CDLL) -> None:
    with model(replay, GEOMETRY, cpus=2) as ours:
        assert set(ours.run(walk([*range(2 * SETS)] * 2, 0))) == {From.MEMORY}
        assert ours.counts().occupancy == 0


@pytest.mark.parametrize("kind", list(Kind))
def test_only_what_was_stored_is_written_back(replay: ctypes.CDLL, kind: Kind) -> None:
    lines = range(SETS * WAYS)
    with model(replay, GEOMETRY) as ours:
        ours.run([Access(line, kind, rmid=1) for line in lines])
        ours.run(walk(range(50_000, 50_000 + 3 * SETS * WAYS), rmid=2))
        assert ours.counts(1).writebacks == (len(lines) if kind is Kind.STORE else 0)
        assert ours.counts(2).writebacks == 0
        assert ours.counts(1).memory_bytes == LINE * (len(lines) + ours.counts(1).writebacks)


def test_lines_count_for_whom_they_were_brought_in_until_they_go(replay: ctypes.CDLL) -> None:
    lines = range(SETS * WAYS)
    with model(replay, GEOMETRY, cpus=2) as ours:
        ours.run(walk(lines, rmid=1))
        ours.run(walk(lines, cpu=1, rmid=2))
        assert (ours.counts(1).occupancy, ours.counts(2).occupancy) == (WAYS * WAY, 0)
        ours.run(walk(range(50_000, 50_000 + SETS), rmid=2))
        assert (ours.counts(1).occupancy, ours.counts(2).occupancy) == ((WAYS - 1) * WAY, WAY)


def test_an_emptied_cache_has_written_back_what_was_changed(replay: ctypes.CDLL) -> None:
    with model(replay, GEOMETRY) as ours:
        ours.run([Access(line, Kind.STORE) for line in range(300)])
        ours.flush()
        assert (ours.counts().occupancy, ours.counts().writebacks) == (0, 300)
        assert set(ours.run(walk(range(300)))) == {From.MEMORY}


def test_the_ways_of_an_l2_are_divided_likewise(replay: ctypes.CDLL) -> None:
    geometry = Geometry(l2_sets=64, l2_ways=8, l3_sets=SETS, l3_ways=WAYS)
    mine = range(6 * 64)
    for mask, spared in ((0xC0, True), (0xFF, False)):
        with model(replay, geometry) as ours:
            ours.run(Access(line, l2_mask=0x3F, rmid=1) for line in mine)
            ours.run(Access(line, l2_mask=mask, rmid=2) for line in range(10_000, 10_000 + 20 * 64))
            again = ours.run(Access(line, l2_mask=0x3F, rmid=1) for line in mine)
            assert (set(again) == {From.L2}) is spared


def test_threads_of_cpus_leave_the_books_in_order(replay: ctypes.CDLL) -> None:
    """The library is called without Python's lock, so these do run at the same time."""
    with model(replay, Geometry(64, 2, SETS, WAYS), cpus=4, rmids=4) as ours:
        together = threading.Barrier(4)
        threads = [threading.Thread(target=_hammer, args=(ours, cpu, together)) for cpu in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for rmid in range(4):
            counts = ours.counts(rmid)
            assert counts.data.total == TIMES * len(BLOWS)
            assert counts.occupancy == sum(ours.held_by_way(WAYS, rmid))
        assert sum(ours.counts(rmid).occupancy for rmid in range(4)) == WAYS * WAY


BLOWS, TIMES = range(20_000), 50


def _hammer(ours: Model, cpu: int, together: threading.Barrier) -> None:
    chance = random.Random(cpu)
    strike = ours.prepare(Access(chance.randrange(6_000), Kind(n % 2), cpu=cpu, rmid=cpu) for n in BLOWS)
    together.wait()
    for _ in range(TIMES):
        strike()
