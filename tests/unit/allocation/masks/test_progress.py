# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.allocation.masks.test_steps import CLASS, A, B, C, inputs, target
from vmqos.allocation.masks.progress import Progress


def progress(now: dict[str, int], goal: dict[str, int]) -> Progress:
    start = inputs(now, ways=8)
    return Progress(start, target(start, goal))


def test_sharing_groups_are_looked_at_first_then_vms_then_what_is_new() -> None:
    found = progress(
        {"": 0b11111000, A: 0b001, "old": 0b11111000},
        {"": 0b11110000, CLASS: 0b00110000, B: 0b10, A: 0b1, C: 0b1100, "old": 0b11110000},
    )
    assert found.order == ("", "old", A, B, C, CLASS)
    assert not found.waits(A) and found.waits(B) and found.waits(CLASS)


def test_a_vm_can_have_ways_that_nobody_has_and_others_those_that_no_vm_has() -> None:
    found = progress({"": 0b11110000, A: 0b0011, B: 0b1100}, {"": 0b11110000, A: 0b0011, B: 0b1000})
    assert found.in_the_way("", 0, 0b11111100) == [B]
    assert found.in_the_way(B, 0, 0b10) == [A]
    assert not found.in_the_way("", 0, 0b11000000)


def test_a_mask_is_a_promise_once_it_is_nobody_elses() -> None:
    found = progress({"": 0b11111111, A: 0b11111111}, {"": 0b11110000, A: 0b0011})
    assert not found.is_in_force(A, 0)
    assert not found.in_the_way("", 0, 0b11110000), "a group that was just created is in nobody's way"
    found.write("", {0: 0b11110000})
    found.write(A, {0: 0b0011})
    assert found.is_in_force(A, 0) and not any(found.missing.values())


def test_what_overlaps_in_the_end_need_not_be_kept_apart_on_the_way() -> None:
    found = progress({"": 0b1111, A: 0b0011}, {"": 0b1110, A: 0b0010})
    assert not found.in_the_way("", 0, 0b1110)


def test_the_default_group_can_do_with_its_floor_and_who_was_granted_something_with_no_less() -> None:
    found = progress({"": 0b11110000, A: 0b0011, B: 0b11110000}, {"": 0b11110000, A: 0b0011, B: 0b11110000})
    assert (found.least("", 0), found.least(A, 0), found.least(B, 0)) == (2, 2, 1)
    found = progress({"": 0b11110000, CLASS: 0b00110000}, {"": 0b11110000, CLASS: 0b11000000})
    assert found.least(CLASS, 0) == 2
    found = progress({"": 0b10000000, A: 0b0011}, {"": 0b11110000, A: 0b0011})
    assert found.least("", 0) == 1
