# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from vmqos.allocation import Policy, Request
from vmqos.allocation.planner_input import read_input
from vmqos.allocation.rights.claims import Claim, bandwidth, read, with_limit
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group
from vmqos.reason import NO_REASON
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities, Monitoring

PERCENT, MBPS, EIGHTHS = BandwidthUnit.PERCENT, BandwidthUnit.MBPS, BandwidthUnit.EIGHTH_GBPS


def claims(kernel: Kernel, *requests: Request) -> list[Claim]:
    return read(read_input(kernel.capabilities, kernel.layout(), Policy(), requests))


def host(capabilities: Capabilities | None = None, **masks: int) -> Kernel:
    """A machine with one cache; VM groups are named by v and their number."""
    kernel = Kernel(capabilities or machine(11))
    for name, mask in masks.items():
        group = vm_group(uuid(int(name[1:]))) if name.startswith("v") else name.replace("default", "")
        kernel.masks[group] = {0: mask}
    return kernel


def held(kernel: Kernel, *requests: Request) -> list[tuple[int | None, int | None]]:
    found = claims(kernel, *requests)
    return [(claim.held.get(0), claim.near.get(0)) for claim in found]


def test_ways_are_rounded_up_to_the_smallest_mask_and_caps_down_to_the_cache() -> None:
    kernel = host(machine(8, fewest=2))
    found = claims(kernel, request(1, 1), request(2, 99), request(3, 1, SHARED), request(4, 99, SHARED))
    assert [(claim.asked, claim.ways) for claim in found] == [(1, 2), (99, 99), (1, 2), (99, 8)]
    assert [claim.group for claim in found if claim.shared] == [
        class_group(CacheRequest(2)),
        class_group(CacheRequest(8)),
    ]


def test_only_caches_that_are_online_count_and_a_vm_on_none_of_them_claims_nothing() -> None:
    found = claims(host(), request(1, 2, caches=[0, 5]), request(2, 2, caches=[5]))
    assert [(claim.uuid, claim.caches) for claim in found] == [(uuid(1), (0,))]


def test_a_vm_may_ask_for_other_ways_on_single_caches() -> None:
    kernel = Kernel(machine(11, caches=(0, 1), cdp=True))
    few, parts = CacheRequest(ways=3), CacheRequest(code_ways=2, data_ways=1)
    asked = [
        replace(request(number, 4, caches=(0, 1)), wants_on={1: here, 7: few})
        for number, here in enumerate((few, parts), start=1)
    ]
    whole, parted = claims(kernel, *asked)
    assert (whole.ways_on, whole.parts(0), whole.parts(1)) == ({0: 4, 1: 3}, (0, 0), (0, 0))
    assert (parted.ways_on, parted.parts(0), parted.parts(1)) == ({0: 4, 1: 3}, (0, 0), (2, 1))


def test_a_mask_of_its_own_is_held_whatever_its_length() -> None:
    assert held(host(default=0x700, v1=0x7, v2=0x38), request(1, 3), request(2, 5)) == [(0x7, None), (0x38, None)]


def test_a_mask_that_overlaps_the_default_groups_is_not() -> None:
    assert held(host(default=0x7FF, v1=0x7), request(1, 5)) == [(None, None)]


def test_but_the_vm_need_not_leave_it_if_it_is_as_long_as_it_should_be() -> None:
    assert held(host(default=0x7FF, v1=0x7), request(1, 3)) == [(None, 0x7)]


def test_a_class_that_was_just_created_takes_nothing_from_a_vm() -> None:
    kernel = host(default=0x700, v1=0x7)
    kernel.masks[class_group(CacheRequest(2))] = {0: 0x7FF}
    assert held(kernel, request(1, 3), request(2, 2, SHARED)) == [(0x7, None), (None, None)]


def test_of_two_masks_that_overlap_the_first_comer_holds_its_own() -> None:
    assert held(host(default=0x700, v1=0x7, v2=0x6), request(1, 3), request(2, 2)) == [(0x7, None), (None, None)]


def test_unless_that_is_longer_than_asked_for() -> None:
    assert held(host(default=0x700, v1=0xF, v2=0x6), request(1, 3), request(2, 2)) == [(None, None), (0x6, None)]


def test_what_is_held_goes_before_what_is_near() -> None:
    assert held(host(default=0x400, v1=0x403, v2=0x3), request(1, 3), request(2, 2)) == [(None, None), (0x3, None)]


def test_a_vm_has_no_more_than_it_is_to_get() -> None:
    (claim,) = claims(host(default=0x700, v1=0x3F), request(1, 2))
    assert claim.has(0) == 2 and claim.has(9) == 0


@pytest.mark.parametrize(
    ("unit", "percent", "mbps", "value"),
    [
        (PERCENT, 50, None, 50),
        (PERCENT, 51, None, 60),
        (PERCENT, 1, None, 10),
        (PERCENT, 100, None, 100),
        (MBPS, None, 1, 1),
        (MBPS, None, 4321, 4321),
        (EIGHTHS, None, 1000, 8),
        (EIGHTHS, None, 1001, 9),
        (EIGHTHS, None, 1, 1),
        (EIGHTHS, None, 10**6, 2048),
        (PERCENT, None, None, None),
    ],
)
def test_a_request_is_rounded_up_to_what_the_machine_knows(
    unit: BandwidthUnit, percent: int | None, mbps: int | None, value: int | None
) -> None:
    wants = CacheRequest(bandwidth_percent=percent, bandwidth_mbps=mbps)
    found = bandwidth(machine(unit=unit), wants)
    assert (found.value, found.fault) == (value, NO_REASON)


@pytest.mark.parametrize(
    ("unit", "asked", "remark"),
    [
        (PERCENT, 51, "gets 60 % of the memory bandwidth for the 51 % asked for"),
        (PERCENT, 50, ""),
        (EIGHTHS, 1001, "gets 1125 MB/s of memory bandwidth for the 1001 MB/s asked for"),
        (EIGHTHS, 1000, ""),
        (EIGHTHS, 10**6, "gets 256000 MB/s"),
        (MBPS, 51, ""),
    ],
)
def test_what_it_comes_to_is_said_where_it_is_something_else(unit: BandwidthUnit, asked: int, remark: str) -> None:
    wants = CacheRequest(bandwidth_percent=asked) if unit is PERCENT else CacheRequest(bandwidth_mbps=asked)
    found = bandwidth(machine(unit=unit), wants).remark
    assert found.text.startswith(remark) and bool(found) == bool(remark)


def test_what_the_machine_does_not_know_is_refused_with_what_helps() -> None:
    percent, mbps = CacheRequest(bandwidth_percent=50), CacheRequest(bandwidth_mbps=50)
    counted = replace(machine(), monitoring=Monitoring(8, ("mbm_total_bytes", "mbm_local_bytes"), 0))
    by_mbps, amd = machine(unit=MBPS), machine(unit=EIGHTHS)
    for capabilities, wants, words in (
        (counted, mbps, "to be mounted with mba_MBps: 'sudo vmqos doctor' tells how"),
        (machine(), mbps, "without counters of bandwidth"),
        (by_mbps, percent, "to be mounted without mba_MBps: 'sudo vmqos doctor' tells how"),
        (amd, percent, "ask for hw:mem_bandwidth_mbps"),
        (Capabilities(), mbps, "can't be throttled by resctrl"),
        (Capabilities(), percent, "can't be throttled by resctrl"),
    ):
        found = bandwidth(capabilities, wants)
        assert found.value is None and words in found.fault.text


@pytest.mark.parametrize(
    ("unit", "value", "found"),
    [
        (PERCENT, 60, CacheRequest(2, bandwidth_percent=60)),
        (MBPS, 7, CacheRequest(2, bandwidth_mbps=7)),
        (EIGHTHS, 3, CacheRequest(2, bandwidth_mbps=375)),
        (MBPS, None, CacheRequest(2)),
    ],
)
def test_a_class_is_named_by_the_real_limit(unit: BandwidthUnit, value: int | None, found: CacheRequest) -> None:
    assert with_limit(CacheRequest(2), machine(unit=unit).memory_bandwidth, value) == found
