# SPDX-License-Identifier: Apache-2.0
"""How the CLOSIDs are divided between exclusive VMs, listed classes and other classes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request
from tests.unit.allocation.run_plan import settle
from vmqos import allocation
from vmqos.allocation import Closids, Policy, PromiseState, Request, WhenFull, plan
from vmqos.extra_specs import CacheRequest
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities

KEPT, PENDING, DEGRADED = PromiseState.KEPT, PromiseState.PENDING, PromiseState.DEGRADED
TWO, FOUR = CacheRequest(2, SHARED), CacheRequest(4, SHARED)
HALF = CacheRequest(bandwidth_percent=50)


def divided(kernel: Kernel, policy: Policy) -> Closids:
    return allocation.divide_closids(kernel.capabilities, kernel.layout(), policy)


def states(kernel: Kernel, policy: Policy, vms: Sequence[Request]) -> list[PromiseState]:
    settle(kernel, vms, policy)
    found = plan(kernel.capabilities, kernel.layout(), vms, policy).allocations
    return [found[vm.uuid].state for vm in vms]


def reason(kernel: Kernel, policy: Policy, vms: Sequence[Request], number: int) -> str:
    return plan(kernel.capabilities, kernel.layout(), vms, policy).allocations[vms[number].uuid].reason.text


def test_where_nothing_is_listed_all_are_for_exclusive_vms_and_classes_alike() -> None:
    kernel = Kernel(machine(closids=4))
    assert divided(kernel, Policy()) == Closids(3, another=True)
    settle(kernel, [request(1, 2, SHARED), request(2, 4, SHARED)], Policy())
    assert divided(kernel, Policy()) == Closids(1, another=True)


def test_a_listed_class_has_its_closid_from_the_start_and_while_no_vm_is_in_it() -> None:
    policy = Policy(shared_classes=(TWO, HALF))
    kernel = Kernel(machine(closids=4))
    assert divided(kernel, policy) == Closids(1, (TWO, HALF), another=True)
    vms = [request(1, 1), request(2, 1), request(3, 2, SHARED), request(4, percent=50), request(5, 2, SHARED)]
    assert states(kernel, policy, vms) == [KEPT, PENDING, KEPT, KEPT, KEPT]
    assert divided(kernel, policy) == Closids(1, (TWO, HALF))
    assert states(kernel, policy, vms[:2]) == [KEPT, PENDING]
    assert "2 are kept for classes of [allocation] shared_classes" in reason(kernel, policy, vms[:2], 1)


def test_of_other_classes_there_are_only_so_many() -> None:
    policy = Policy(shared_classes=(TWO,), other_classes=1)
    kernel = Kernel(machine(closids=8))
    vms = [request(1, 3, SHARED), request(2, 4, SHARED), request(3, 3, SHARED), request(4, 2, SHARED)]
    assert divided(kernel, policy) == Closids(5, (TWO,), another=True, others=1)
    assert states(kernel, policy, vms) == [KEPT, PENDING, KEPT, KEPT]
    assert divided(kernel, policy) == Closids(5, (TWO,), others=1)
    assert "other_classes allows 1" in reason(kernel, policy, vms, 1)


def test_a_vm_of_one_class_too_many_shares_another_where_the_operator_says_so() -> None:
    policy = Policy(other_classes=1, when_full=WhenFull.SHARE)
    kernel = Kernel(machine(closids=8))
    vms = [request(1, 3, SHARED), request(2, 4, SHARED)]
    assert states(kernel, policy, vms) == [KEPT, DEGRADED]
    assert "it shares vmqos.shared-ways3 instead" in reason(kernel, policy, vms, 1)


def test_classes_beyond_the_number_that_exist_already_stay_and_lower_what_is_left_for_exclusive_vms() -> None:
    kernel = Kernel(machine(closids=8))
    vms = [request(number, number, SHARED) for number in (1, 2, 3)]
    assert states(kernel, Policy(), vms) == [KEPT] * 3
    policy = Policy(other_classes=1)
    assert states(kernel, policy, vms) == [KEPT] * 3
    assert divided(kernel, policy) == Closids(4, others=3)


def test_on_a_full_host_a_listed_class_is_offered_once_a_closid_is_free() -> None:
    kernel = Kernel(machine(closids=3))
    vms = [request(1, 1), request(2, 1)]
    settle(kernel, vms, Policy())
    policy = Policy(shared_classes=(TWO, FOUR))
    assert divided(kernel, policy) == Closids(0, (), (TWO, FOUR))
    settle(kernel, vms[:1], policy)
    assert divided(kernel, policy) == Closids(0, (TWO,), (FOUR,))


@pytest.mark.parametrize(
    ("on", "offered"),
    [
        (machine(), (TWO, HALF)),
        (machine(unit=BandwidthUnit.MBPS), (TWO,)),
        (Capabilities({}, machine().bandwidths), (HALF,)),
        (Capabilities(), ()),
    ],
)
def test_what_a_host_can_not_grant_takes_no_closid(on: Capabilities, offered: tuple[CacheRequest, ...]) -> None:
    found = allocation.divide_closids(on, allocation.Layout(()), Policy(shared_classes=(TWO, HALF)))
    assert (found.offered, found.refused) == (offered, ())


def test_two_classes_that_a_host_rounds_to_one_take_one_closid() -> None:
    low, high = CacheRequest(bandwidth_percent=45), CacheRequest(bandwidth_percent=50)
    kernel = Kernel(machine(closids=4))
    assert divided(kernel, Policy(shared_classes=(low, high))) == Closids(2, (low, high), another=True)


def test_classes_with_l2_ways_are_offered_where_there_is_l2() -> None:
    both = CacheRequest(2, SHARED, l2_ways=1)
    assert divided(Kernel(machine(l2=True, closids=4)), Policy(shared_classes=(both,))).offered == (both,)
    assert divided(Kernel(machine(closids=4)), Policy(shared_classes=(both,))).offered == ()


@dataclass
class Cloud:
    """One host, and what Placement knows of it, which may be out of date."""

    kernel: Kernel
    policy: Policy
    told: Closids = field(default_factory=Closids)
    claimed: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def tell(self) -> None:
        """The agent tells Placement."""
        self.told = divided(self.kernel, self.policy)

    def claim(self, wants: CacheRequest | None) -> None:
        """A server of a flavor that asks Placement is placed here, if Placement has what it asks for.

        :param wants: its shared class; ``None`` for an exclusive server.
        """
        number = next(self.numbers)
        if wants is None:
            held = sum(vm.wants.policy is not SHARED and vm.wants.bandwidth_percent is None for vm in self.claimed)
            if held < self.told.exclusive:
                self.claimed.append(request(number, mbps=1000))
        elif wants in self.told.offered:
            self.claimed.append(request(number, wants.ways, wants.policy, mbps=wants.bandwidth_mbps))

    def pass_over(self) -> None:
        """The agent's loop."""
        settle(self.kernel, self.running, self.policy)


LISTED = (TWO, FOUR, CacheRequest(2, SHARED, bandwidth_mbps=500))


@given(
    closids=st.integers(4, 6),
    listed=st.integers(0, 3),
    others=st.integers(0, 2),
    events=st.lists(st.tuples(st.sampled_from("tteeesssaaaaooouxd"), st.integers(0, 9)), min_size=10, max_size=60),
)
def test_a_vm_that_placement_claimed_for_is_never_pending_for_want_of_a_closid(
    closids: int, listed: int, others: int, events: list[tuple[str, int]]
) -> None:
    kernel = Kernel(machine(unit=BandwidthUnit.EIGHTH_GBPS, closids=closids))
    cloud = Cloud(kernel, Policy(shared_classes=LISTED[: min(listed, closids - 1)], other_classes=others))
    cloud.tell()
    uncounted = False
    for event, number in events:
        waiting = [vm for vm in cloud.claimed if vm not in cloud.running]
        if event == "t":
            cloud.tell()
        elif event in "es":
            cloud.claim(None if event == "e" else LISTED[number % 3])
        elif event == "a" and waiting:
            # A server that was placed, or was shut off, starts.
            cloud.running.append(waiting[number % len(waiting)])
        elif event == "o":
            # One of a flavor that asks Placement for nothing starts.
            cloud.running.append(request(next(cloud.numbers), 3 + number % 4 * 2, SHARED))
        elif event == "u":
            # Likewise an exclusive one: it may take what Placement counts for another exclusive server.
            cloud.running.append(request(next(cloud.numbers), mbps=1000))
            uncounted = True
        elif event in "xd" and cloud.running:
            gone = cloud.running.pop(number % len(cloud.running))
            # A server that is shut off keeps its claim.
            if event == "d" and gone in cloud.claimed:
                cloud.claimed.remove(gone)
        cloud.pass_over()
        found = plan(kernel.capabilities, kernel.layout(), cloud.running, cloud.policy).allocations
        claimed = [
            found[vm.uuid]
            for vm in cloud.running
            if vm in cloud.claimed and (vm.wants.policy is SHARED or not uncounted)
        ]
        assert all("CLOSID" not in verdict.reason.text for verdict in claimed), claimed
