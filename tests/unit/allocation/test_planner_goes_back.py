# SPDX-License-Identifier: Apache-2.0
"""Masks that were moved for a while lie again where they lay, if they can; each step on the way keeps the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.unit.allocation.examples import DEFAULT, KEPT, host, masks
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import follow, settle
from vmqos.allocation import Plan, Request, plan
from vmqos.resctrl.bitmask import CapacityBitmask

Places = Mapping[str, Mapping[int, CapacityBitmask]]

CLASS = request(9, 2, SHARED)


def places(kernel: Kernel) -> Places:
    return {group.name: group.masks for group in kernel.layout().groups}


def back(kernel: Kernel, requests: Sequence[Request], before: Places) -> Plan:
    """Plan with what was before, and do it."""
    granted = {name: {cache: mask.count for cache, mask in of.items()} for name, of in places(kernel).items() if name}
    found = plan(kernel.capabilities, kernel.layout(), requests, DEFAULT, granted, before)
    follow(kernel, requests, DEFAULT, found)
    return found


def grow(kernel: Kernel, requests: Sequence[Request], number: int, most: int) -> None:
    """Let one VM have one way after the other."""
    others = [one for one in requests if one.uuid != uuid(number)]
    for ways in range(3, most + 1):
        settle(kernel, [*others, request(number, ways)], DEFAULT)


@pytest.mark.parametrize("more", [[], [CLASS]], ids=["no class", "a class"])
@pytest.mark.parametrize("most", range(3, 8))
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_vm_that_had_more_ways_for_a_while_leaves_every_mask_where_it_was(
    number: int, most: int, more: list[Request]
) -> None:
    requests = [request(1, 2), request(2, 2), request(3, 2), *more]
    kernel = host(*requests, on=machine(13, shareable=0x1800))
    before, at_first = places(kernel), masks(kernel)
    grow(kernel, requests, number, most)
    assert masks(kernel)[number].bit_count() == most
    found = back(kernel, requests, before)
    assert masks(kernel) == at_first
    assert all(given.state is KEPT for given in found.allocations.values())
    assert not back(kernel, requests, before).prepare, "there is nothing left to do"
    assert not back(kernel, requests, {}).prepare, "nor is there without it"


def test_where_a_vm_has_come_meanwhile_nothing_goes_back() -> None:
    requests = [request(1, 2), request(2, 2)]
    kernel = host(*requests)
    before = places(kernel)
    grow(kernel, requests, 1, 5)
    moved = masks(kernel)[2]
    back(kernel, [*requests, request(3, 1)], before)
    assert masks(kernel)[2] == moved and masks(kernel)[1].bit_count() == 2 and masks(kernel)[3].bit_count() == 1


def test_a_vm_that_has_gone_meanwhile_hinders_nobody() -> None:
    requests = [request(1, 2), request(2, 2), request(3, 2)]
    kernel = host(*requests)
    before, at_first = places(kernel), masks(kernel)
    grow(kernel, requests, 1, 4)
    back(kernel, requests[:2], before)
    assert [masks(kernel)[number] for number in (1, 2)] == [at_first[1], at_first[2]]


def test_each_cache_goes_back_by_itself() -> None:
    requests = [request(1, 2, caches=(0, 1)), request(2, 2, caches=(0, 1))]
    kernel = host(*requests, on=machine(11, (0, 1)))
    before, at_first = places(kernel), masks(kernel, 0)
    settle(kernel, [request(1, 5, caches=(0, 1)), requests[1]], DEFAULT)
    back(kernel, [*requests, request(3, 2, caches=[1])], before)
    assert masks(kernel, 0) == {**at_first, 3: at_first[""]}
    assert masks(kernel, 1)[3].bit_count() == 2
