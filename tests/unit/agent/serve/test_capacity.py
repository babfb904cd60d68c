# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.unit.allocation.machines import SHARED, machine, request, uuid
from vmqos import group_names
from vmqos.agent.serve import capacity
from vmqos.allocation import Group, Layout, Policy
from vmqos.extra_specs import CacheRequest
from vmqos.extra_specs.resources import (
    CMT,
    L2_CAT,
    L3_CAT,
    L3_CDP,
    MBA,
    MBA_MBPS,
    MBA_PERCENT,
    MBM,
    SHARED_FULL,
    SHARED_ROOM,
)
from vmqos.group_names import owner_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities, Monitoring

VM = group_names.vm_group(uuid(1))


def view(found: Capabilities, masks: Mapping[str, Mapping[int, int]]) -> ResctrlState:
    groups = [
        Group(name, owner_of(name), {cache: CapacityBitmask(mask) for cache, mask in of.items()})
        for name, of in masks.items()
    ]
    return ResctrlState((1, 1), found, Layout(tuple(groups)), {}, {})


def test_an_empty_host_has_all_but_the_floor() -> None:
    found = capacity.of(view(machine(), {"": {0: 0x7FF}}), Policy())
    assert found == {
        "ways": 9,
        "longest": 9,
        "fewest": 1,
        "classes": 15,
        "offered": [],
        "refused": [],
        "others": None,
        "held": 0,
        "traits": sorted({L3_CAT, MBA, MBA_PERCENT, SHARED_ROOM}),
    }


def test_what_vms_have_already_is_still_part_of_it() -> None:
    empty = capacity.of(view(machine(), {"": {0: 0x7FF}}), Policy())
    found = capacity.of(view(machine(), {"": {0: 0x7F0}, VM: {0: 0xF}}), Policy(), [request(1, 4)])
    assert found == {**empty, "held": 4}


def test_the_most_ways_of_its_own_that_a_vm_was_promised_are_held() -> None:
    vms = [request(1, 4), request(2, 2), request(3, 5, SHARED)]
    # Ways that are reserved since: no other VM can have as many as the one that runs.
    lowered = Policy(reserved_ways=CapacityBitmask(0x7E0))
    found = capacity.of(view(machine(), {"": {0: 0x7F0}, VM: {0: 0xF}}), lowered, vms)
    assert found["held"] == 4 and found["longest"] < 4


def test_the_cache_that_has_the_least_counts() -> None:
    masks = {"": {0: 0x7FF, 1: 0x0FF}, "pqos": {0: 0, 1: 0x700}}
    found = capacity.of(view(machine(caches=(0, 1)), masks), Policy())
    assert (found["ways"], found["classes"]) == (6, 14)


def test_a_foreign_group_in_the_middle_leaves_less_for_one_vm_than_for_two() -> None:
    found = capacity.of(view(machine(), {"": {0: 0x7DF}, "pqos": {0: 0x020}}), Policy())
    # Five ways below it and five above; the floor is in the one part.
    assert (found["ways"], found["longest"]) == (8, 5)


def test_a_shared_class_takes_its_ways_and_its_closid() -> None:
    masks = {"": {0: 0x7FF}, group_names.class_group(CacheRequest(5)): {0: 0x1F}}
    found = capacity.of(view(machine(), masks), Policy(), [request(2, 5, SHARED)])
    assert (found["ways"], found["classes"]) == (6, 14)


def test_a_listed_class_is_offered_and_its_closid_to_nothing_else() -> None:
    listed = Policy(shared_classes=(CacheRequest(4, SHARED), CacheRequest(bandwidth_percent=50)))
    found = capacity.of(view(machine(), {"": {0: 0x7FF}}), listed)
    assert found["classes"] == 13
    assert found["offered"] == ["CUSTOM_LLC_SHARED_MB50", "CUSTOM_LLC_SHARED_WAYS4"]
    assert found["refused"] == []


def test_a_listed_class_without_a_closid_is_refused() -> None:
    vms = {group_names.vm_group(uuid(number)): {0: 1 << number} for number in (1, 2)}
    listed = Policy(shared_classes=(CacheRequest(4, SHARED),))
    found = capacity.of(view(machine(closids=3), {"": {0: 0x7F8}, **vms}), listed)
    assert (found["offered"], found["refused"]) == ([], ["CUSTOM_LLC_SHARED_WAYS4"])
    assert SHARED_FULL in found["traits"]


@pytest.mark.parametrize(("closids", "others"), [(16, 2), (8, 2), (7, 1), (4, 1)])
def test_where_placement_counts_a_few_closids_are_left_for_classes_that_are_not_listed(
    closids: int, others: int
) -> None:
    counting = Policy(placement_counts=True)
    found = capacity.of(view(machine(closids=closids), {"": {0: 0x7FF}}), counting)
    assert found["classes"] == closids - 1 - others
    classes = {group_names.class_group(CacheRequest(ways)): {0: 1} for ways in range(1, 1 + others)}
    full = capacity.of(view(machine(closids=closids), {"": {0: 0x7FF}, **classes}), counting)
    assert full["classes"] == found["classes"]
    assert SHARED_ROOM in found["traits"] and SHARED_FULL in full["traits"]
    assert found["others"] == full["others"] == others


def test_reserved_ways_are_not_promised() -> None:
    found = capacity.of(view(machine(), {"": {0: 0x7FC}}), Policy(reserved_ways=CapacityBitmask(3)))
    assert found["ways"] == 7


def test_a_request_below_the_smallest_mask_can_not_be_placed_there() -> None:
    found = capacity.of(view(machine(ways=20, fewest=2), {"": {0: 0xFFFFF}}), Policy())
    assert (found["ways"], found["longest"], found["fewest"]) == (18, 18, 2)


def test_without_l3_there_are_no_ways_and_the_classes_are_those_of_the_rest() -> None:
    whole = machine(l2=True, closids=4)
    for rest, traits in (
        (replace(whole, caches={}), {MBA, MBA_PERCENT}),
        (replace(whole, caches={"L2": whole.caches["L2"]}, bandwidths={}), {L2_CAT}),
    ):
        found = capacity.of(view(rest, {"": {}}), Policy())
        assert (found["ways"], found["classes"], found["others"]) == (0, 3, None)
        assert found["traits"] == sorted({*traits, SHARED_ROOM})


def test_where_nothing_can_be_given_out_there_are_no_classes() -> None:
    found = capacity.of(view(Capabilities(), {"": {}}), Policy())
    assert found["classes"] == 0
    assert found["traits"] == []


def test_traits_tell_what_the_host_is_able_to_do() -> None:
    plain = machine()
    everything = replace(plain, monitoring=Monitoring(32, ("llc_occupancy", "mbm_total_bytes"), 0))
    assert capacity.of(view(everything, {"": {0: 0x7FF}}), Policy())["traits"] == sorted(
        {L3_CAT, MBA, MBA_PERCENT, CMT, MBM, SHARED_ROOM}
    )


@pytest.mark.parametrize(
    ("unit", "traits"),
    [
        (BandwidthUnit.PERCENT, {MBA, MBA_PERCENT}),
        (BandwidthUnit.MBPS, {MBA, MBA_MBPS}),
        (BandwidthUnit.EIGHTH_GBPS, {MBA, MBA_MBPS}),
    ],
)
def test_traits_tell_in_which_unit_bandwidth_can_be_limited(unit: BandwidthUnit, traits: set[str]) -> None:
    found = capacity.of(view(machine(unit=unit), {"": {0: 0x7FF}}), Policy())
    assert found["traits"] == sorted({L3_CAT, SHARED_ROOM, *traits})


def test_the_fewest_closids_of_all_resources_count() -> None:
    whole = machine(l2=True, closids=16)
    few = {name: replace(found, num_closids=8) for name, found in whole.bandwidths.items()}
    found = capacity.of(view(replace(whole, bandwidths=few), {"": {0: 0x7FF}}), Policy())
    assert (found["classes"], found["traits"]) == (
        7,
        sorted({L3_CAT, L2_CAT, MBA, MBA_PERCENT, SHARED_ROOM}),
    )


def test_cdp_leaves_as_many_ways_and_half_as_many_classes() -> None:
    plain = machine()
    half = replace(plain.caches["L3"], num_closids=plain.num_closids // 2)
    by_cdp = replace(plain, caches={"L3CODE": half, "L3DATA": half}, bandwidths={})
    found = capacity.of(view(by_cdp, {"": {0: 0x7FF}}), Policy())
    whole = capacity.of(view(replace(plain, bandwidths={}), {"": {0: 0x7FF}}), Policy())
    assert found["traits"] == sorted({L3_CAT, L3_CDP, SHARED_ROOM})
    for key in ("ways", "longest", "fewest"):
        assert found[key] == whole[key]
    assert found["classes"] == plain.num_closids // 2 - 1
