# SPDX-License-Identifier: Apache-2.0
"""What is planned where little or nothing is to be done, or can be."""

from __future__ import annotations

import pytest

from tests.unit.allocation.examples import DEFAULT, KEPT, PENDING, carry_out, host, look, ways
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import EXCLUSIVE, SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import follow, settle
from vmqos.allocation import (
    Allocation,
    Plan,
    Policy,
    PromiseState,
    RemoveGroup,
    Request,
    SetExclusive,
    WriteMasks,
    plan,
    whatif,
)
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import vm_group
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities


class TestGuards:
    def test_the_guard_is_taken_off_before_the_ways_are_given_back(self) -> None:
        kernel = host(request(1, 3))
        name = vm_group(uuid(1))
        found = look(kernel, [])
        assert found.prepare[0] == SetExclusive(name, False)
        assert found.prepare[1:] == (WriteMasks(name, ways({0: 0x7FF})), WriteMasks("", ways({0: 0x7FF})))
        assert found.retire == (RemoveGroup(name),)

    def test_no_guard_where_an_l2_overlaps_or_the_operator_wants_none(self) -> None:
        assert not host(request(1, 3), on=machine(11, l2=True)).exclusive
        assert not host(request(1, 3), policy=Policy(kernel_exclusive=False)).exclusive
        kernel = host(request(1, 3))
        settle(kernel, [request(1, 3)], Policy(kernel_exclusive=False))
        assert not kernel.exclusive

    def test_a_guard_that_would_leave_a_new_group_no_mask_is_off_for_a_moment(self) -> None:
        # Way 0 is reserved and alone: it is all that the kernel would give the second group, and too little.
        policy = Policy(reserved_ways=CapacityBitmask(0x1))
        first, second = vm_group(uuid(1)), vm_group(uuid(2))
        kernel = host(request(1, 2), on=machine(12, fewest=2), policy=policy)
        assert kernel.exclusive == {first}
        vms = [request(1, 2), request(2, 2)]
        found = look(kernel, vms, policy)
        follow(kernel, vms, policy, found)
        assert SetExclusive(first, False) in found.prepare
        assert kernel.exclusive == {first, second}


class TestIdle:
    def test_a_host_without_requests_is_left_as_the_operator_made_it(self) -> None:
        kernel = Kernel(machine(11))
        kernel.masks[""] = {0: 0x1F}
        assert look(kernel, []) == Plan()

    @pytest.mark.parametrize("reserved", [0, 0x3])
    @pytest.mark.parametrize("foreign", [0, 0x700])
    def test_but_what_an_agent_took_from_the_default_group_is_given_back_at_once_and_once(
        self, reserved: int, foreign: int
    ) -> None:
        kernel, policy = Kernel(machine(11, (0, 1))), Policy(reserved_ways=CapacityBitmask(reserved))
        kernel.masks[""] = {0: 0x1C, 1: 0x7C}
        if foreign:
            kernel.masks["other"] = {0: foreign, 1: foreign}
        assert look(kernel, [], policy) == Plan()
        all_of_it = 0x7FF & ~reserved & ~foreign
        found = plan(kernel.capabilities, kernel.layout(), [], policy, gives_back=True)
        assert found.prepare == (WriteMasks("", ways({0: all_of_it, 1: all_of_it})),) and not found.retire
        follow(kernel, [], policy, found)
        assert plan(kernel.capabilities, kernel.layout(), [], policy, gives_back=True) == Plan()

    def test_but_reserved_ways_are_taken_from_the_default_group_at_once_and_once(self) -> None:
        policy = Policy(reserved_ways=CapacityBitmask(0x3))
        kernel = Kernel(machine(11, (0, 1)))
        assert look(kernel, [], policy).prepare == (WriteMasks("", ways({0: 0x7FC, 1: 0x7FC})),)
        carry_out(kernel, [], policy)
        assert look(kernel, [], policy) == Plan()

    def test_where_the_host_would_have_no_other_ways_it_keeps_reserved_ones(self) -> None:
        kernel = Kernel(machine(4))
        assert look(kernel, [], Policy(reserved_ways=CapacityBitmask(0xF))) == Plan()

    def test_nor_is_anything_touched_for_a_vm_that_can_not_be_served(self) -> None:
        kernel = Kernel(machine(11))
        kernel.masks[""] = {0: 0x1F}
        found = look(kernel, [request(1, 11)])
        assert found.prepare == found.retire == () and found.allocations[uuid(1)].state is PENDING

    def test_somebody_who_wrote_over_the_default_groups_masks_is_put_right(self) -> None:
        vms = [request(1, 3), request(2, 2)]
        kernel = host(*vms, policy=Policy(kernel_exclusive=False))
        before = dict(kernel.masks)
        kernel.masks = before | {"": {0: 0x7FF}}
        carry_out(kernel, vms, Policy(kernel_exclusive=False))
        assert kernel.masks == before


class TestUnfit:
    @pytest.mark.parametrize(
        ("capabilities", "words"),
        [
            pytest.param(Capabilities(), "can't be partitioned by resctrl", id="no L3 CAT"),
        ],
    )
    def test_a_machine_that_can_not_do_it_says_why(self, capabilities: Capabilities, words: str) -> None:
        vms = [request(1, 2), request(2, 2, SHARED)]
        found = plan(capabilities, Kernel(machine(11)).layout(), vms, DEFAULT)
        assert found.prepare == found.retire == ()
        for verdict in found.allocations.values():
            assert verdict.state is PENDING and words in verdict.reason.text

    def test_a_vm_on_caches_that_are_offline_waits(self) -> None:
        found = carry_out(Kernel(machine(11)), [request(1, 2, caches=[7])])
        assert found[1].state is PENDING and "online" in found[1].reason.text

    def test_a_vm_that_asks_for_no_ways_gets_none(self) -> None:
        nothing = Request(uuid(1), CacheRequest(), frozenset({0}), 1)
        assert look(Kernel(machine(11)), [nothing]).allocations == {uuid(1): Allocation(PromiseState.NONE)}


class TestWhatIf:
    def test_it_tells_what_one_more_vm_would_get(self) -> None:
        kernel = host(request(1, 4))
        wants = CacheRequest(ways=5, policy=EXCLUSIVE)
        verdict, found = whatif(kernel.capabilities, kernel.layout(), [request(1, 4)], DEFAULT, wants, frozenset({0}))
        assert verdict.state is KEPT and verdict.masks[0].count == 5
        assert found.prepare and found.allocations.keys() > {uuid(1)} and len(found.allocations) == 2

    def test_who_waits_already_comes_first(self) -> None:
        kernel = host(request(1, 4))
        vms = [request(1, 4), request(2, 5)]
        verdict, _ = whatif(kernel.capabilities, kernel.layout(), vms, DEFAULT, CacheRequest(ways=5), frozenset({0}))
        assert verdict.state is PENDING
