# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.bitmask."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask

BITS = st.integers(min_value=0, max_value=2**64 - 1)
MASKS = BITS.map(CapacityBitmask)
WAYS = st.sets(st.integers(min_value=0, max_value=63))


@given(MASKS)
def test_a_mask_reads_back_as_it_was_written(mask):
    assert CapacityBitmask.parse(str(mask)) == mask


@given(BITS, st.integers(min_value=0, max_value=8))
def test_zeros_in_front_a_prefix_and_capitals_change_nothing(bits, zeros):
    digits = "0" * zeros + f"{bits:x}"
    for text in (digits, digits.upper(), f"0x{digits}", f"0X{digits}"):
        assert CapacityBitmask.parse(text) == CapacityBitmask(bits)


@pytest.mark.parametrize("text", ["", " ", "g", "7 ff", "-1", "+1", "0x", "7ff\n", "1_0", "\u0661", "7,f"])
def test_anything_but_hexadecimal_digits_is_refused(text):
    with pytest.raises(exceptions.InvalidBitmask) as caught:
        CapacityBitmask.parse(text)
    assert repr(text) in str(caught.value)


def test_negative_bits_are_refused():
    with pytest.raises(ValueError, match="-1"):
        CapacityBitmask(-1)


def of_ways(ways):
    return CapacityBitmask(sum(1 << way for way in ways))


@given(WAYS)
def test_a_mask_of_ways_has_exactly_these_ways(ways):
    mask = of_ways(ways)
    assert mask.ways == tuple(sorted(ways))
    assert mask.count == len(ways)
    assert bool(mask) == bool(ways)


@given(st.integers(min_value=0, max_value=32), st.integers(min_value=0, max_value=32))
def test_a_run_is_that_many_neighbours_from_its_start_on(start, length):
    mask = CapacityBitmask.run(start, length)
    assert mask.ways == tuple(range(start, start + length))
    assert mask.is_contiguous


@given(MASKS)
def test_runs_are_the_mask_cut_at_its_gaps(mask):
    runs = mask.runs()
    assert CapacityBitmask(sum(run.bits for run in runs)) == mask
    assert all(run and run.is_contiguous for run in runs)
    for lower, upper in itertools.pairwise(runs):
        assert lower.ways[-1] + 1 < upper.ways[0]


@given(MASKS)
def test_a_mask_without_a_gap_has_at_most_one_run(mask):
    assert mask.is_contiguous == (len(mask.runs()) <= 1)


@given(WAYS, WAYS)
def test_masks_combine_as_sets_of_ways_do(left, right):
    one, other = of_ways(left), of_ways(right)
    assert set(one & other) == left & right
    assert set(one | other) == left | right
    assert set(one - other) == left - right
    assert one.overlaps(other) == bool(left & right)
