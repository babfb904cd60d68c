# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from vmqos.allocation import Policy, Request
from vmqos.allocation.claims import Claim, ExclusiveClaim, SharedClaim, in_order, read
from vmqos.allocation.planner_input import read_input
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group
from vmqos.resctrl.capabilities import Capabilities


def claims(kernel: Kernel, *requests: Request) -> list[Claim]:
    return read(read_input(kernel.capabilities, kernel.l3, kernel.layout(), Policy()), in_order(requests))


def host(capabilities: Capabilities | None = None, **masks: int) -> Kernel:
    """A machine with one cache; VM groups are named by v and their number."""
    kernel = Kernel(capabilities or machine(11))
    for name, mask in masks.items():
        group = vm_group(uuid(int(name[1:]))) if name.startswith("v") else name.replace("default", "")
        kernel.masks[group] = {0: mask}
    return kernel


def held(kernel: Kernel, *requests: Request) -> list[tuple[int | None, int | None]]:
    found = claims(kernel, *requests)
    return [(claim.held.get(0), claim.near.get(0)) for claim in found if isinstance(claim, ExclusiveClaim)]


def test_requests_come_by_arrival_then_uuid_and_once_for_each_vm() -> None:
    first, second, third = request(3, 1, arrival=1), request(1, 1, arrival=2), request(2, 1, arrival=2)
    assert in_order([third, second, first, request(3, 5, arrival=7)]) == [first, second, third]


def test_ways_are_rounded_up_to_the_smallest_mask_and_caps_down_to_the_cache() -> None:
    kernel = host(machine(8, fewest=2))
    found = claims(kernel, request(1, 1), request(2, 99), request(3, 1, SHARED), request(4, 99, SHARED))
    assert [(claim.asked, claim.ways) for claim in found] == [(1, 2), (99, 99), (1, 2), (99, 8)]
    assert [claim.group for claim in found if isinstance(claim, SharedClaim)] == [
        class_group(CacheRequest(2)),
        class_group(CacheRequest(8)),
    ]


def test_only_caches_that_are_online_count_and_a_vm_on_none_of_them_claims_nothing() -> None:
    found = claims(host(), request(1, 2, caches=[0, 5]), request(2, 2, caches=[5]))
    assert [(claim.uuid, claim.caches) for claim in found] == [(uuid(1), (0,))]


def test_a_mask_of_its_own_is_held_whatever_its_length() -> None:
    assert held(host(default=0x700, v1=0x7, v2=0x38), request(1, 3), request(2, 5)) == [(0x7, None), (0x38, None)]


def test_a_mask_that_overlaps_the_default_groups_is_not() -> None:
    assert held(host(default=0x7FF, v1=0x7), request(1, 5)) == [(None, None)]


def test_but_the_vm_need_not_leave_it_if_it_is_as_long_as_it_should_be() -> None:
    assert held(host(default=0x7FF, v1=0x7), request(1, 3)) == [(None, 0x7)]


def test_a_class_that_was_just_created_takes_nothing_from_a_vm() -> None:
    kernel = host(default=0x700, v1=0x7)
    kernel.masks[class_group(CacheRequest(2))] = {0: 0x7FF}
    assert held(kernel, request(1, 3), request(2, 2, SHARED)) == [(0x7, None)]


def test_of_two_masks_that_overlap_the_first_comer_holds_its_own() -> None:
    assert held(host(default=0x700, v1=0x7, v2=0x6), request(1, 3), request(2, 2)) == [(0x7, None), (None, None)]


def test_unless_that_is_longer_than_asked_for() -> None:
    assert held(host(default=0x700, v1=0xF, v2=0x6), request(1, 3), request(2, 2)) == [(None, None), (0x6, None)]


def test_what_is_held_goes_before_what_is_near() -> None:
    assert held(host(default=0x400, v1=0x403, v2=0x3), request(1, 3), request(2, 2)) == [(None, None), (0x3, None)]


def test_a_vm_has_no_more_than_it_is_to_get() -> None:
    (claim,) = claims(host(default=0x700, v1=0x3F), request(1, 2))
    assert isinstance(claim, ExclusiveClaim) and claim.has(0) == 2 and claim.has(9) == 0
