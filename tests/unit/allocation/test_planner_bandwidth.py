# SPDX-License-Identifier: Apache-2.0
"""Limits of memory bandwidth, alone and beside ways."""

from __future__ import annotations

import pytest

from tests.unit.allocation.examples import DEFAULT, carry_out, host, look, masks
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import settle
from vmqos.allocation import CreateGroup, Group, Layout, Policy, PromiseState, WhenFull, WriteThrottles, plan
from vmqos.group_names import Owner, vm_group
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities

KEPT, PENDING, DEGRADED = PromiseState.KEPT, PromiseState.PENDING, PromiseState.DEGRADED
MBPS, EIGHTHS = BandwidthUnit.MBPS, BandwidthUnit.EIGHTH_GBPS


def test_ways_of_its_own_come_with_a_limit_where_the_vm_can_run() -> None:
    kernel = Kernel(machine(caches=(0, 1)))
    found = carry_out(kernel, [request(1, 3, caches=[1], percent=45)])[1]
    assert (found.state, found.throttles) == (KEPT, {1: 50})
    assert found.reason.text.startswith("gets 50 % of the memory bandwidth for the 45 % asked for")
    assert kernel.limits(vm_group(uuid(1))) == {0: 100, 1: 50}
    assert kernel.limits("") == {0: 100, 1: 100}


def test_a_limit_in_per_cent_alone_is_a_class_with_the_default_groups_ways() -> None:
    kernel = Kernel(machine())
    vms = [request(1, 4), request(2, percent=30), request(3, percent=30), request(4, percent=80)]
    found = carry_out(kernel, vms)
    assert [(found[n].state, found[n].group) for n in (2, 3, 4)] == [
        (KEPT, "vmqos.shared-mb30"),
        (KEPT, "vmqos.shared-mb30"),
        (KEPT, "vmqos.shared-mb80"),
    ]
    ways = masks(kernel)
    assert ways["vmqos.shared-mb30"] == ways["vmqos.shared-mb80"] == ways[""] and not ways[""] & ways[1]
    assert found[2].masks == {}
    carry_out(kernel, [*vms, request(5, 3)])
    ways = masks(kernel)
    assert ways["vmqos.shared-mb30"] == ways[""] and not ways[""] & (ways[1] | ways[5])


@pytest.mark.parametrize(("unit", "limit"), [(MBPS, 1000), (EIGHTHS, 8)])
def test_a_limit_in_mbps_alone_is_a_group_of_its_own_with_the_default_groups_ways(
    unit: BandwidthUnit, limit: int
) -> None:
    kernel = Kernel(machine(unit=unit))
    found = carry_out(kernel, [request(1, mbps=1000), request(2, mbps=1000)])
    assert {n: (each.state, each.group, each.throttles) for n, each in found.items()} == {
        n: (KEPT, vm_group(uuid(n)), {0: limit}) for n in (1, 2)
    }
    assert masks(kernel)[1] == masks(kernel)[2] == masks(kernel)[""] == 0x7FF


def test_a_class_is_all_that_it_grants() -> None:
    kernel = Kernel(machine())
    vms = [request(1, 3, SHARED), request(2, 3, SHARED, percent=20), request(3, 3, SHARED, percent=11)]
    found = carry_out(kernel, vms)
    assert [found[n].group for n in (1, 2, 3)] == [
        "vmqos.shared-ways3", "vmqos.shared-ways3-mb20", "vmqos.shared-ways3-mb20"
    ]  # fmt: skip
    assert kernel.limits("vmqos.shared-ways3") == {0: 100}


def test_a_class_is_limited_wherever_one_of_its_vms_can_run() -> None:
    kernel = Kernel(machine(caches=(0, 1, 2)))
    carry_out(kernel, [request(1, percent=20, caches=[0]), request(2, percent=20, caches=[2])])
    assert kernel.limits("vmqos.shared-mb20") == {0: 20, 1: 100, 2: 20}


def test_a_limit_is_changed_and_lifted_and_moves_with_the_vm() -> None:
    kernel = Kernel(machine(caches=(0, 1)))
    name = vm_group(uuid(1))
    for vm, limits in (
        (request(1, 2, caches=[0], percent=20), {0: 20, 1: 100}),
        (request(1, 2, caches=[0], percent=40), {0: 40, 1: 100}),
        (request(1, 2, caches=[1], percent=40), {0: 100, 1: 40}),
        (request(1, 2, caches=[1]), {0: 100, 1: 100}),
    ):
        settle(kernel, [vm], DEFAULT)
        assert kernel.limits(name) == limits


def test_somebody_who_changed_a_limit_of_ours_is_put_right_and_others_groups_stay() -> None:
    vm = request(1, 2, percent=20)
    kernel = host(vm)
    kernel.throttles[vm_group(uuid(1))] = {0: 90}
    kernel.throttles[""] = {0: 70}
    assert look(kernel, [vm]).prepare == (WriteThrottles(vm_group(uuid(1)), {0: 20}),)
    carry_out(kernel, [vm])
    assert kernel.limits("") == {0: 70}


def test_what_the_machine_does_not_throttle_is_pending_or_degraded_with_the_reason() -> None:
    kernel = Kernel(machine(unit=EIGHTHS))
    found = carry_out(kernel, [request(1, percent=20), request(2, 3, percent=20), request(3, 3, SHARED, percent=20)])
    assert [found[n].state for n in (1, 2, 3)] == [PENDING, DEGRADED, DEGRADED]
    assert all("ask for hw:mem_bandwidth_mbps" in found[n].reason.text for n in (1, 2, 3))
    assert found[1].group == "" and found[2].masks[0].count == 3 and not found[2].throttles
    assert found[3].group == "vmqos.shared-ways3"


def test_bandwidth_is_limited_where_no_ways_can_be_given_out() -> None:
    only = Capabilities({}, machine().bandwidths)
    vms = [request(1, percent=20), request(2, 2, percent=20), request(3, 2)]
    found = plan(only, Layout((Group("", Owner.DEFAULT, {}, throttles={0: 100}),)), vms, Policy())
    name = "vmqos.shared-mb20"
    assert found.prepare == (CreateGroup(name), WriteThrottles(name, {0: 20}))
    one, two, three = (found.allocations[uuid(n)] for n in (1, 2, 3))
    assert (one.state, one.group, one.throttles) == (KEPT, name, {0: 20})
    assert (two.state, two.group) == (DEGRADED, name) and "can't be partitioned" in two.reason.text
    assert three.state is PENDING and "can't be partitioned" in three.reason.text


def test_the_classes_of_bandwidth_count_among_those_of_service() -> None:
    kernel = Kernel(machine(closids=3))
    found = carry_out(kernel, [request(1, percent=20), request(2, percent=40), request(3, percent=60)])
    assert [found[n].state for n in (1, 2, 3)] == [KEPT, KEPT, PENDING] and "CLOSID" in found[3].reason.text


@pytest.mark.parametrize(
    ("vm", "group"),
    [
        (request(3, percent=30), "vmqos.shared-mb40"),
        (request(3, percent=60), ""),
        (request(3, 2, SHARED), ""),
        (request(3, 2, SHARED, percent=10), "vmqos.shared-ways2-mb20"),
    ],
)
def test_who_shares_for_want_of_classes_is_limited_no_more_than_it_asked(vm: object, group: str) -> None:
    policy = Policy(when_full=WhenFull.SHARE)
    vms = [request(1, percent=40), request(2, 2, SHARED, percent=20), vm]
    found = carry_out(Kernel(machine(closids=3)), vms, policy)[3]  # type: ignore[arg-type]
    assert (found.state, found.group) == (DEGRADED, group)
