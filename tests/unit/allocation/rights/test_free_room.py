# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import assume, given

from tests.unit.allocation.hosts import Host, hosts
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request
from tests.unit.allocation.run_plan import settle
from vmqos.allocation import FreeRoom, Layout, Policy, PromiseState, free_ways, plan, whatif
from vmqos.allocation.reasons import NO_SAFE_ORDER
from vmqos.allocation.rights.closids import kept_classes
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group
from vmqos.resctrl.capabilities import Capabilities


def room(kernel: Kernel, policy: Policy | None = None) -> dict[int, FreeRoom]:
    return free_ways(kernel.capabilities, kernel.layout(), policy or Policy())


def test_an_untouched_host_can_promise_all_but_the_floor_and_the_ways_of_io() -> None:
    kernel = Kernel(machine(11, (0, 1), 0x600))
    assert room(kernel) == {0: FreeRoom(9, 9), 1: FreeRoom(9, 9)}
    assert room(kernel, Policy(default_ways_min=4))[0] == FreeRoom(7, 7)
    assert room(kernel, Policy(use_shareable_ways=True))[0] == FreeRoom(9, 9)


def test_what_vms_have_is_not_free_even_where_the_vm_can_not_run() -> None:
    kernel = Kernel(machine(11, (0, 1)))
    settle(kernel, [request(1, 3, caches=[0])], Policy())
    assert room(kernel) == {0: FreeRoom(6, 6), 1: FreeRoom(9, 9)}


def test_a_class_keeps_its_cap() -> None:
    kernel = Kernel(machine(11))
    settle(kernel, [request(1, 6, SHARED)], Policy())
    assert class_group(CacheRequest(6)) in kernel.masks
    assert room(kernel) == {0: FreeRoom(5, 5)}


def test_and_keeps_it_where_its_vms_can_run_if_that_is_known() -> None:
    kernel = Kernel(machine(11, (0, 1)))
    vms = [request(1, 6, SHARED, caches=[1])]
    settle(kernel, vms, Policy())
    assert room(kernel) == {0: FreeRoom(5, 5), 1: FreeRoom(5, 5)}
    assert free_ways(kernel.capabilities, kernel.layout(), Policy(), vms) == {0: FreeRoom(9, 9), 1: FreeRoom(5, 5)}


def test_a_foreign_group_in_the_middle_leaves_two_pieces() -> None:
    kernel = Kernel(machine(11))
    kernel.masks["pqos"] = {0: 0x20}
    kernel.masks[""] = {0: 0x1F}
    assert room(kernel) == {0: FreeRoom(8, 5)}


def test_nothing_can_be_promised_while_the_default_group_lacks_ways() -> None:
    kernel = Kernel(machine(4))
    kernel.masks["pqos"] = {0: 0b0110}
    assert room(kernel) == {0: FreeRoom(0, 0)}


def test_a_host_without_l3_has_no_room() -> None:
    assert free_ways(Capabilities(), Layout(()), Policy()) == {}


@given(hosts(most_caches=2))
def test_a_newcomer_gets_the_largest_free_run_and_no_more(host: Host) -> None:
    kernel = host.kernel
    settle(kernel, host.requests, host.policy)
    found = plan(kernel.capabilities, kernel.layout(), host.requests, host.policy).allocations
    # Those who wait for something are served before a newcomer is.
    assume(all(verdict.state is not PromiseState.DEGRADED for verdict in found.values()))
    kept = kept_classes(kernel.capabilities, host.policy)
    assume(len(kernel.masks.keys() | kept.keys()) < kernel.capabilities.num_closids)
    served = [vm for vm in host.requests if found[vm.uuid].state is PromiseState.KEPT]
    budgets = free_ways(kernel.capabilities, kernel.layout(), host.policy, served)
    for cache, free in budgets.items():
        for ways, expected in ((free.largest_free_run, True), (free.largest_free_run + 1, False)):
            if ways < max(1, kernel.l3.min_cbm_bits):
                continue
            verdict, _ = whatif(
                kernel.capabilities,
                kernel.layout(),
                served,
                host.policy,
                CacheRequest(ways=ways),
                frozenset({cache}),
            )
            # That masks can be moved for it without an overlap on the way is known only once it is tried.
            held_up = expected and verdict.reason == NO_SAFE_ORDER
            assert held_up or (verdict.state is PromiseState.KEPT) == expected, (verdict, free)


def test_the_l2_caches_have_room_of_their_own() -> None:
    kernel = Kernel(machine(11, l2=True))
    assert free_ways(kernel.capabilities, kernel.layout(), Policy(), level=2) == dict.fromkeys(range(3), FreeRoom(6, 6))
    vm = request(1, 3, l2=4, cores=[1])
    settle(kernel, [vm], Policy())
    left = free_ways(kernel.capabilities, kernel.layout(), Policy(), [vm], level=2)
    assert left == {0: FreeRoom(6, 6), 1: FreeRoom(2, 2), 2: FreeRoom(6, 6)}
    assert free_ways(machine(11), kernel.layout(), Policy(), level=2) == {}
