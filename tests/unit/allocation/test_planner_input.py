# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import machine, request, uuid
from vmqos.allocation import Group, Layout, Policy
from vmqos.allocation.cache_ways import CacheWays
from vmqos.allocation.planner_input import PlannerInput, read_input
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import Owner, class_group, vm_group
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities


def inputs(kernel: Kernel, policy: Policy | None = None) -> PlannerInput:
    return read_input(kernel.capabilities, kernel.layout(), policy or Policy())


def test_what_may_be_promised_is_neither_foreign_nor_reserved_nor_ios() -> None:
    kernel = Kernel(machine(11, shareable=0x600))
    kernel.masks |= {"": {0: 0x7F0}, "pqos": {0: 0xC}}
    found = inputs(kernel, Policy(reserved_ways=CapacityBitmask(0x1001))).cache_ways
    assert found == {0: CacheWays(0x7FF, 0x7F2, 0, 0x1F2, 0x600, 1, False, floor=2, reserved=0x1001, foreign=0xC)}
    found = inputs(kernel, Policy(use_shareable_ways=True)).cache_ways
    assert found == {0: CacheWays(0x7FF, 0x7F3, 0, 0x7F3, 0x600, 1, False, floor=2, foreign=0xC)}


def test_ways_that_devices_are_confined_to_are_ios_on_their_caches_alone() -> None:
    found = machine(11, (0, 1, 2), shareable=0x400)
    l3 = replace(found.caches["L3"], io_alloc={0: CapacityBitmask(0x3), 1: CapacityBitmask(0)})
    kernel = Kernel(replace(found, caches={"L3": l3}))
    cache_ways = inputs(kernel).cache_ways
    assert {cache: cache_ways.shareable for cache, cache_ways in cache_ways.items()} == {0: 0x403, 1: 0x400, 2: 0x400}
    assert {cache: cache_ways.exclusive for cache, cache_ways in cache_ways.items()} == {0: 0x3FC, 1: 0x3FF, 2: 0x3FF}


def test_ways_for_devices_of_an_l2_are_known_by_the_kernel_s_id() -> None:
    l3 = machine(11, (0,)).caches["L3"]
    l2 = replace(l3, name="L2", cache_ids=(0, 5), io_alloc={5: CapacityBitmask(0x3)})
    found = read_input(Capabilities({"L3": l3, "L2": l2}), Kernel(machine(11)).layout(), Policy(), with_l2=True)
    assert {cache: cache_ways.shareable for cache, cache_ways in found.cache_ways.items()} == {0: 0, ~0: 0, ~5: 0x3}


def test_the_default_group_may_stay_with_foreign_groups_that_it_is_with() -> None:
    kernel = Kernel(machine(11))
    kernel.masks |= {"": {0: 0x7F8}, "pqos": {0: 0x1C}}
    assert inputs(kernel).cache_ways == {0: CacheWays(0x7FF, 0x7FB, 0x18, 0x7E3, 0, 1, False, floor=2, foreign=0x1C)}


def test_hardware_that_takes_an_empty_mask_is_given_none() -> None:
    assert inputs(Kernel(machine(11, fewest=0))).cache_ways[0].fewest == 1


def test_the_floor_is_a_legal_mask() -> None:
    assert inputs(Kernel(machine(11, fewest=2)), Policy(default_ways_min=1)).cache_ways[0].floor == 2
    assert inputs(Kernel(machine(11)), Policy(default_ways_min=3)).cache_ways[0].floor == 3


def test_groups_are_found_by_owner_in_the_order_of_names() -> None:
    kernel = Kernel(machine(11))
    names = [class_group(CacheRequest(2)), vm_group(uuid(2)), vm_group(uuid(1)), "b", "a"]
    kernel.masks |= {name: {0: 1 << number} for number, name in enumerate(names)}
    found = inputs(kernel)
    assert found.ours == (vm_group(uuid(1)), vm_group(uuid(2)), class_group(CacheRequest(2)))
    assert found.names[Owner.FOREIGN] == ("a", "b")
    assert found.cache_ways[0].foreign == 0x18
    assert found.ways(["a", class_group(CacheRequest(2)), "nobody"], 0) == 0x11


def test_caches_that_a_group_does_not_know_and_that_are_offline_count_for_nothing() -> None:
    kernel = Kernel(machine(4, (0, 1)))
    groups = (Group("x", Owner.FOREIGN, {0: CapacityBitmask(1), 7: CapacityBitmask(1)}),)
    found = read_input(kernel.capabilities, Layout(groups), Policy())
    assert found.masks == {"x": {0: 1}, "": {}} and set(found.cache_ways) == {0, 1}
    assert found.cache_ways[1].pool == 0xF


def test_requests_come_by_arrival_then_uuid_and_once_for_each_vm() -> None:
    first, second, third = request(3, 1, arrival=1), request(1, 1, arrival=2), request(2, 1, arrival=2)
    kernel = Kernel(machine(11))
    wanted = [third, second, first, request(3, 5, arrival=7)]
    found = read_input(kernel.capabilities, kernel.layout(), Policy(), wanted)
    assert found.requests == (first, second, third)
