# SPDX-License-Identifier: Apache-2.0
"""Freed RMIDs wait in limbo until their lines have drained."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.simulator.hardware.rmids import RmidAllocator


def clean(rmid: int, domain: int) -> bool:
    return False


def _refusal(rmids: RmidAllocator) -> int | None:
    with pytest.raises(OSError) as refused:
        rmids.take()
    return refused.value.errno


def test_rmid_0_is_never_given_out() -> None:
    rmids = RmidAllocator(4, [0])
    assert [rmids.take() for _ in range(3)] == [1, 2, 3]


def test_none_left_is_enospc_but_ebusy_while_one_is_in_limbo() -> None:
    rmids = RmidAllocator(2, [0])
    taken = rmids.take()
    assert _refusal(rmids) == errno.ENOSPC
    rmids.give_back(taken, 0.0)
    assert _refusal(rmids) == errno.EBUSY


def test_even_an_unused_rmid_waits_for_the_next_check() -> None:
    rmids = RmidAllocator(2, [0, 1])
    rmids.give_back(rmids.take(), 10.0)
    rmids.check(10.9, clean)
    assert _refusal(rmids) == errno.EBUSY
    rmids.check(11.0, clean)
    assert rmids.take() == 1


def test_a_dirty_rmid_waits_for_every_cache() -> None:
    rmids = RmidAllocator(2, [0, 1])
    rmids.give_back(rmids.take(), 0.0)
    rmids.check(5.0, lambda rmid, domain: domain == 1)
    assert rmids.in_limbo == (1,)
    rmids.check(6.0, clean)
    assert rmids.free == (1,)


def test_what_waits_for_a_cache_that_goes_offline_waits_no_longer() -> None:
    rmids = RmidAllocator(2, [0, 1])
    rmids.give_back(rmids.take(), 0.0)
    rmids.check(1.0, lambda rmid, domain: domain == 1)
    rmids.set_online(1, False)
    assert rmids.free == (1,)


def test_one_can_be_let_out_of_limbo() -> None:
    rmids = RmidAllocator(3, [0, 1])
    for rmid in (rmids.take(), rmids.take()):
        rmids.give_back(rmid, 0.0)
    rmids.release(2)
    assert (rmids.free, rmids.in_limbo) == ((2,), (1,))


def test_without_occupancy_there_is_no_limbo() -> None:
    rmids = RmidAllocator(2, [0], has_limbo=False)
    rmids.give_back(rmids.take(), 0.0)
    assert rmids.take() == 1


def test_a_long_silence_is_caught_up_with_at_once() -> None:
    rmids = RmidAllocator(3, [0])
    rmids.give_back(rmids.take(), 0.0)
    rmids.check(1e9, lambda rmid, domain: True)
    rmids.check(1e9 + 2, clean)
    assert 1 in rmids.free


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 12))
def test_no_rmid_is_lost_or_given_out_twice(steps: list[bool], count: int) -> None:
    rmids, held, now = RmidAllocator(count, [0, 1]), set[int](), 0.0
    for take in steps:
        now += 0.3
        rmids.check(now, clean)
        if take and rmids.free:
            rmid = rmids.take()
            assert rmid not in held
            held.add(rmid)
        elif held:
            rmids.give_back(held.pop(), now)
        assert held | set(rmids.free) | set(rmids.in_limbo) == set(range(1, count))
        assert len(held) + len(rmids.free) + len(rmids.in_limbo) == count - 1
