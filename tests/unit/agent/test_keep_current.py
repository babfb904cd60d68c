# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import machine
from tests.unit.allocation.run_plan import settle
from vmqos.agent import keep_current
from vmqos.allocation import Group, Layout, Policy, Split
from vmqos.allocation.cache_ways import run
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import owner_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit, Capabilities

A, B = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


def view(
    groups: Mapping[str, Mapping[int, int]], monitoring_groups: Mapping[str, tuple[str, ...]] | None = None
) -> ResctrlState:
    layout = Layout(
        tuple(
            Group(name, owner_of(name), {cache: CapacityBitmask(bits) for cache, bits in masks.items()})
            for name, masks in groups.items()
        )
    )
    return state(Capabilities(), layout, monitoring_groups or {})


def state(
    capabilities: Capabilities, layout: Layout, inside: Mapping[str, tuple[str, ...]] | None = None
) -> ResctrlState:
    return ResctrlState((0, 0, 0), capabilities, layout, {}, inside or {})


def test_a_vm_with_ways_of_its_own_asks_for_as_many_where_it_has_them() -> None:
    now = view({"": {0: 0x7F0, 1: 0x7FF}, f"vmqos.{A}": {0: 0x00F, 1: 0x7FF}})
    (asked,) = keep_current.requests(now, {A})
    assert (asked.uuid, asked.wants.ways, asked.wants.policy) == (A, 4, CachePolicy.EXCLUSIVE)
    assert asked.caches == {0}, "on the other cache it has what everybody has"


def test_a_vm_of_a_class_asks_for_its_cap() -> None:
    now = view({"": {0: 0x7FF}, "vmqos.shared-ways3": {0: 0x7}}, {"vmqos.shared-ways3": (f"vmqos.{A}", f"vmqos.{B}")})
    (asked,) = keep_current.requests(now, {B})
    assert (asked.uuid, asked.wants.ways, asked.wants.policy) == (B, 3, CachePolicy.SHARED)


def test_a_vm_that_is_counted_in_its_class_and_in_the_default_group_asks_for_its_cap() -> None:
    name, inside = "vmqos.shared-ways3", (f"vmqos.{A}",)
    (asked,) = keep_current.requests(view({"": {0: 0x7FF}, name: {0: 0x7}}, {"": inside, name: inside}), {A})
    assert (asked.wants.ways, asked.wants.policy) == (3, CachePolicy.SHARED)


MB = BandwidthResource("MB", 8, 10, 10, True, (0, 1))


def limited(now: ResctrlState, limits: Mapping[str, Mapping[int, int]]) -> ResctrlState:
    """The same with limits of memory bandwidth."""
    groups = tuple(replace(group, throttles=limits.get(group.name, {})) for group in now.layout.groups)
    return replace(now, layout=Layout(groups), capabilities=Capabilities({}, {"MB": MB}))


def test_a_vm_keeps_its_limit_of_bandwidth_beside_its_ways_and_alone() -> None:
    now = view({"": {0: 0x7F0}, f"vmqos.{A}": {0: 0x00F}, f"vmqos.{B}": {0: 0x7F0}})
    now = limited(now, {f"vmqos.{A}": {0: 40, 1: 100}, f"vmqos.{B}": {0: 100, 1: 30}})
    first, second = keep_current.requests(now, {A, B})
    assert (first.wants, first.caches) == (CacheRequest(ways=4, bandwidth_percent=40), {0})
    assert (second.wants, second.caches) == (CacheRequest(bandwidth_percent=30), {1})


def test_a_vm_keeps_each_limit_where_it_is_whatever_its_masks_look_like() -> None:
    """So it is if an agent was killed in the middle of a plan: a mask on its way, on a cache that the VM left."""
    now = view({"": {0: 0x7FF, 1: 0x7C0}, f"vmqos.{A}": {0: 0x7FF, 1: 0x03F}})
    (asked,) = keep_current.requests(limited(now, {f"vmqos.{A}": {0: 40, 1: 100}}), {A})
    assert asked.caches == {0, 1} and asked.in_own_group
    assert asked.wants == CacheRequest(ways=6, bandwidth_percent=40), "on the cache that it seems to have come to"
    assert asked.wants_on == {0: CacheRequest(bandwidth_percent=40)}
    (asked,) = keep_current.requests(limited(now, {f"vmqos.{A}": {0: 40, 1: 30}}), {A})
    assert asked.wants == CacheRequest(ways=6, bandwidth_percent=30)
    assert asked.wants_on == {0: CacheRequest(bandwidth_percent=40)}


def test_a_vm_of_a_class_of_everything_asks_for_all_of_it_where_it_is_limited() -> None:
    name = "vmqos.shared-code1-data2-l2ways3-mb50"
    now = view({"": {0: 0x7FF, 1: 0x7FF}, name: {0: 0x7, 1: 0x7, ~5: 0x7}}, {name: (f"vmqos.{A}",)})
    (asked,) = keep_current.requests(limited(now, {name: {0: 50, 1: 100}}), {A})
    assert asked.wants == CacheRequest(None, CachePolicy.SHARED, 1, 2, 3, 50)
    assert asked.caches == {0, ~5}


def test_a_vm_keeps_its_ways_for_code_and_data_and_those_of_l2() -> None:
    now = view({"": {0: 0x7F0, ~3: 0xF0}, f"vmqos.{A}": {0: 0x00F, ~3: 0x03}})
    parts = {0: Split(CapacityBitmask(0x1), CapacityBitmask(0xE))}
    groups = tuple(replace(group, splits=parts if group.name else {}) for group in now.layout.groups)
    (asked,) = keep_current.requests(replace(now, layout=Layout(groups)), {A})
    assert asked.wants == CacheRequest(code_ways=1, data_ways=3, l2_ways=2) and asked.caches == {0, ~3}


def test_a_vm_that_has_nothing_asks_for_nothing() -> None:
    now = view({"": {0: 0x7FF}, "mine": {0: 0x3}}, {"": (f"vmqos.{A}",), "mine": (f"vmqos.{B}",)})
    assert not list(keep_current.requests(now, {A, B}))


def test_a_group_that_was_only_just_made_is_no_grant_and_stays() -> None:
    (asked,) = keep_current.requests(view({"": {0: 0x7FF}, f"vmqos.{A}": {0: 0x7FF}}), {A})
    assert (asked.wants, asked.in_own_group) == (CacheRequest(), True)


@pytest.mark.parametrize(
    ("mask", "default", "then"),
    [
        pytest.param(0x3FF, 0x3FF, (0x7FF, 0x7FF), id="the default group's"),
        pytest.param(0x7FF, 0x3FF, (0x7FF, 0x7FF), id="every way"),
        pytest.param(0x00F, 0x3FF, (0x00F, 0x7F0), id="written"),
    ],
)
def test_what_a_groups_mask_shows_of_an_unseen_vm_it_keeps_and_otherwise_stays_with_the_default_groups_ways(
    mask: int, default: int, then: tuple[int, int]
) -> None:
    kernel, own = Kernel(machine(11)), f"vmqos.{A}"
    kernel.masks = {"": {0: default}, own: {0: mask}}
    settle(kernel, list(keep_current.requests(state(kernel.capabilities, kernel.layout()), {A})), Policy())
    assert (kernel.masks[own][0], kernel.masks[""][0]) == then


def test_a_vm_whose_mask_an_outsider_spoilt_asks_for_what_it_was_granted() -> None:
    name = f"vmqos.{A}"
    now = view({"": {0: 0x7F0, 1: 0x7FF}, name: {0: 0x01F, 1: 0x7FF}})
    (asked,) = keep_current.requests(now, {A}, granted={name: {0: 4, 1: 0}})
    assert (asked.wants.ways, asked.caches) == (4, {0})


def test_a_vm_whose_tasks_are_in_a_class_asks_for_its_cap() -> None:
    now = view({"": {0: 0x7FF}, "vmqos.shared-ways3": {0: 0x7}})
    (asked,) = keep_current.requests(now, {A}, keep_current.Members({A: "vmqos.shared-ways3"}))
    assert (asked.uuid, asked.wants.ways, asked.wants.policy) == (A, 3, CachePolicy.SHARED)


def test_a_class_that_an_unseen_vm_may_be_in_is_asked_for_in_its_own_name() -> None:
    name = "vmqos.shared-ways3"
    now = view({"": {0: 0x7FF}, name: {0: 0x7}, "vmqos.shared-ways2": {0: 0x3}})
    (asked,) = keep_current.requests(now, {A, B}, keep_current.Members(claimed=frozenset({name, "vmqos.shared-ways9"})))
    assert (asked.uuid, asked.wants.ways, asked.wants.policy) == (name, 3, CachePolicy.SHARED)


# A VM may have fewer ways on one cache than on another.


def test_a_vm_keeps_on_each_cache_what_it_has_there() -> None:
    """So it is if an agent was killed in the middle of a plan: both masks on their way on the cache that it left."""
    now = view({"": {0: 0x600, 1: 0x03C}, f"vmqos.{A}": {0: 0x03C, 1: 0x700}})
    (asked,) = keep_current.requests(now, {A})
    assert (asked.wants, asked.caches) == (CacheRequest(ways=4), {0, 1})
    assert asked.wants_on == {1: CacheRequest(ways=3)}


def test_a_vm_keeps_its_ways_for_code_and_data_on_each_cache() -> None:
    now = view({"": {0: 0x7C0, 1: 0x7C0, ~0: 0xF0, ~1: 0xF0}, f"vmqos.{A}": {0: 0x03C, 1: 0x007, ~0: 0x1, ~1: 0x3}})
    parts = {
        0: Split(CapacityBitmask(0x004), CapacityBitmask(0x038)),
        1: Split(CapacityBitmask(0x003), CapacityBitmask(0x004)),
    }
    groups = tuple(replace(group, splits=parts if group.name else {}) for group in now.layout.groups)
    (asked,) = keep_current.requests(replace(now, layout=Layout(groups)), {A})
    assert asked.wants == CacheRequest(code_ways=1, data_ways=3, l2_ways=2)
    assert asked.wants_on == {1: CacheRequest(code_ways=2, data_ways=1), ~0: CacheRequest(l2_ways=1)}


def test_where_earlier_plans_granted_nothing_a_vm_has_nothing_to_keep() -> None:
    name = f"vmqos.{A}"
    now = view({"": {0: 0x600, 1: 0x03C}, name: {0: 0x03C, 1: 0x700}})
    (asked,) = keep_current.requests(now, {A}, granted={name: {0: 4, 1: 0}})
    assert (asked.wants, asked.caches, asked.wants_on) == (CacheRequest(ways=4), {0}, {})


@pytest.mark.parametrize("own", range(1, 6))
def test_whatever_a_vms_group_has_where_the_vm_can_not_run_it_keeps_its_ways_where_it_can(own: int) -> None:
    default, inside = run(9, 2), f"vmqos.{A}"
    for start, end in itertools.combinations(range(12), 2):
        kernel = Kernel(machine(11, caches=(0, 1)))
        kernel.masks = {"": {0: default, 1: default}, inside: {0: run(0, own), 1: run(start, end - start)}}
        settle(kernel, list(keep_current.requests(state(kernel.capabilities, kernel.layout()), {A})), Policy())
        assert kernel.masks[inside][0] == run(0, own), (start, end)


@pytest.mark.parametrize("unit", [BandwidthUnit.PERCENT, BandwidthUnit.MBPS])
def test_whatever_a_vms_group_has_where_the_vm_can_not_run_its_limit_stays_where_it_is(unit: BandwidthUnit) -> None:
    """The mask there may be as that of another VM, too, which the planner then takes for the other one's."""
    other, inside = f"vmqos.{A}", f"vmqos.{B}"
    for start, end in itertools.combinations(range(12), 2):
        kernel = Kernel(machine(11, caches=(0, 1), unit=unit))
        every, own = run(0, 11), run(start, end - start)
        kernel.masks = {"": {0: every, 1: run(9, 2)}, inside: {0: every, 1: own}, other: {0: every, 1: run(0, 9)}}
        kernel.throttles = {inside: {0: 40}}
        settle(kernel, list(keep_current.requests(state(kernel.capabilities, kernel.layout()), {A, B})), Policy())
        assert inside in kernel.masks and kernel.limits(inside)[0] == 40, (start, end)
