# SPDX-License-Identifier: Apache-2.0
"""Who evicted whom; that the counts are right to the last line is in ``test_against_reference.py``."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.kernel.cachemodel import log
from tests.kernel.cachemodel.library import Access, Extra, Geometry, Kind, model

SETS, WAYS = 64, 4
GEOMETRY = Geometry(l2_sets=64, l2_ways=1, l3_sets=SETS, l3_ways=WAYS)
COUNTED = Extra(evictions=True)


def _lines(first: int, count: int, rmid: int, mask: int = 0xF) -> list[Access]:
    return [Access(line, Kind.LOAD, mask, rmid=rmid) for line in range(first, first + count)]


def test_a_fill_is_blamed_for_the_line_that_went_and_an_empty_way_for_nothing(replay: ctypes.CDLL) -> None:
    with model(replay, GEOMETRY, extra=COUNTED) as ours:
        ours.run(_lines(0, 4 * SETS, rmid=1))
        assert all(ours.evicted(by, of) == 0 for by in range(4) for of in range(4))
        ours.run(_lines(1000 * SETS, SETS, rmid=2))
        assert {(by, of): ours.evicted(by, of) for by in range(4) for of in range(4) if ours.evicted(by, of)} == {
            (2, 1): SETS
        }
        ours.run(_lines(2000 * SETS, 4 * SETS, rmid=1))
        # The oldest first: its own three, then the other's.
        assert (ours.evicted(1, 1), ours.evicted(1, 2)) == (3 * SETS, SETS)


def test_neither_a_flush_nor_a_class_without_ways_evicts(replay: ctypes.CDLL) -> None:
    with model(replay, GEOMETRY, extra=COUNTED) as ours:
        ours.run(_lines(0, 4 * SETS, rmid=1))
        ours.run(_lines(1000 * SETS, 4 * SETS, rmid=2, mask=0))
        ours.flush()
        assert all(ours.evicted(by, 1) == 0 for by in range(4))


def test_whoever_does_not_ask_gets_no_counts(replay: ctypes.CDLL) -> None:
    with model(replay, GEOMETRY) as ours:
        ours.run(_lines(0, 9 * SETS, rmid=1))
        assert ours.evicted(1, 1) == 0


@pytest.mark.parametrize("sample", [0, 3])
def test_the_file_of_counts_says_whom_each_rmid_evicted(replay: ctypes.CDLL, tmp_path: Path, sample: int) -> None:
    with model(replay, Geometry(64, 1, SETS, WAYS, sample), rmids=512, extra=COUNTED) as ours:
        places = ours.places(sample)
        for rmid in (300, 511):
            ours.run(access for access in _lines(rmid * 100 * SETS, 5 * SETS, rmid) if access.line % 64 in places)
            ours._library.hierarchy_executed(ours._handle, 0, rmid, ctypes.c_uint64(1))
        ours.report(tmp_path / "counts")
    found = {snapshot.rmid: snapshot.evicted for snapshot in log.read(tmp_path / "counts")}
    assert found == {300: {300: SETS}, 511: {300: 4 * SETS, 511: SETS}}
