# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from vmqos.allocation import Policy, Request
from vmqos.allocation.masks.target import Target, build, split
from vmqos.allocation.planner_input import read_input
from vmqos.allocation.rights.admission import admit
from vmqos.allocation.rights.claims import read
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group

A, B, C = (vm_group(uuid(number)) for number in (1, 2, 3))


def aim(kernel: Kernel, *requests: Request, policy: Policy | None = None) -> Target:
    inputs = read_input(kernel.capabilities, kernel.layout(), policy or Policy(), requests)
    claims = read(inputs)
    return build(inputs, claims, admit(inputs, claims), {})


def test_every_group_of_ours_has_a_mask_on_every_cache() -> None:
    kernel = Kernel(machine(11, (0, 1)))
    kernel.masks |= {C: {0: 0x700, 1: 0x700}, "": {0: 0xFF, 1: 0xFF}}
    found = aim(kernel, request(2, 3, SHARED), request(1, 2, caches=[1]))
    assert found.masks == {
        "": {0: 0x7FF, 1: 0x1FF},
        A: {0: 0x7FF, 1: 0x600},
        class_group(CacheRequest(3)): {0: 0x7, 1: 0x7},
        C: {0: 0x7FF, 1: 0x1FF},
    }
    assert found.own == {(A, 1)}
    assert found.created == (A, class_group(CacheRequest(3))) and found.retired == (C,)


def test_new_groups_come_by_arrival() -> None:
    found = aim(Kernel(machine(11)), request(1, 2, arrival=3), request(2, 2, arrival=1), request(3, 2, arrival=2))
    assert found.created == (B, C, A)


def test_a_class_is_rather_away_from_the_ways_of_io_and_from_foreign_groups() -> None:
    kernel = Kernel(machine(11, shareable=0x3))
    kernel.masks |= {"": {0: 0x7FF}, "pqos": {0: 0x1C}}
    assert aim(kernel, request(1, 3, SHARED)).masks[class_group(CacheRequest(3))] == {0: 0xE0}


def test_only_a_group_alone_on_every_cache_and_off_the_ways_of_io_can_be_guarded() -> None:
    everywhere, here = request(1, 2, caches=(0, 1)), request(2, 2, caches=[0])
    assert aim(Kernel(machine(11, (0, 1))), everywhere, here).guarded == {A}
    assert aim(Kernel(machine(11, (0, 1), l2=True)), everywhere).guarded == frozenset()
    assert aim(Kernel(machine(11, (0, 1))), everywhere, policy=Policy(kernel_exclusive=False)).guarded == frozenset()
    on_io = Policy(use_shareable_ways=True)
    assert aim(Kernel(machine(11, shareable=0x3FF)), request(1, 4), policy=on_io).guarded == frozenset()


def test_where_exclusive_masks_and_others_have_everything_the_default_group_stays_clear_of_the_exclusive_ones() -> None:
    kernel = Kernel(machine(4))
    kernel.masks |= {"": {0: 0b0001}, A: {0: 0b1110}, "pqos": {0: 0b1111}}
    assert aim(kernel, request(1, 3)).masks == {"": {0: 0b0001}, A: {0: 0b1110}}
    kernel.masks |= {"": {0: 0b0011}, A: {0: 0b0111}, B: {0: 0b1000}}
    found = aim(kernel, request(2, 1))
    assert not found.masks[""][0] & 0b1000


def test_where_nothing_is_left_the_default_group_joins_whoever_is_not_guarded() -> None:
    kernel = Kernel(machine(4))
    kernel.masks |= {"": {0: 0}, A: {0: 0b1100}, "pqos": {0: 0b0011}}
    assert aim(kernel, request(1, 2)).masks == {"": {0: 0b0011}, A: {0: 0b1100}}


@pytest.mark.parametrize(
    ("ways", "code", "data", "parts"),
    [
        (0b111111, 2, 4, (0b000011, 0b111100)),
        (0b111100000, 1, 3, (0b000100000, 0b111000000)),
        (0b1111, 2, 4, (0b0011, 0b1111)),
        (0b11, 2, 4, (0b11, 0b11)),
        (0b1, 2, 4, (0b1, 0b1)),
        (0b11111111, 2, 4, (0b11, 0b11111100)),
        (0b110011, 1, 3, (0b000001, 0b110010)),
        (0b1111, 0, 0, (0b1111, 0b1111)),
    ],
)
def test_code_has_the_lowest_ways_and_data_the_others(ways: int, code: int, data: int, parts: tuple[int, int]) -> None:
    found = split(ways, code, data)
    assert (found.code.bits, found.data.bits) == parts


@given(st.integers(1, 0xFFFFF), st.integers(1, 9), st.integers(1, 9))
def test_the_parts_are_the_whole_and_no_smaller_than_they_can_be(ways: int, code: int, data: int) -> None:
    found, count = split(ways, code, data), ways.bit_count()
    assert (found.code | found.data).bits == ways
    assert found.code.count >= min(code, count) and found.data.count >= min(data, count)
    assert found.is_apart or count < code + data
