# SPDX-License-Identifier: Apache-2.0
"""Groups that are not one VM's: classes, foreign ones, and how many there can be."""

from __future__ import annotations

import pytest

from tests.unit.allocation.examples import DEFAULT, DEGRADED, KEPT, PENDING, carry_out, host, look, masks, ways
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import follow, settle
from vmqos.allocation import Policy, RemoveGroup, WhenFull
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group


class TestClasses:
    def test_vms_with_the_same_cap_share_a_class_till_the_last_one_goes(self) -> None:
        kernel = host(request(1, 2, SHARED), request(2, 2, SHARED), request(3, 4, SHARED))
        assert set(kernel.masks) == {"", class_group(CacheRequest(2)), class_group(CacheRequest(4))}
        found = look(kernel, [request(2, 2, SHARED)])
        assert found.retire == (RemoveGroup(class_group(CacheRequest(4))),)
        follow(kernel, [request(2, 2, SHARED)], DEFAULT, found)
        settle(kernel, [], DEFAULT)
        assert masks(kernel) == {"": 0x7FF}

    def test_a_class_lies_within_the_default_groups_ways(self) -> None:
        kernel = host(request(1, 4, SHARED), request(2, 5))
        assert masks(kernel) == {"": 0x7E0, 2: 0x1F, class_group(CacheRequest(4)): 0x1E0}

    def test_no_later_vm_takes_from_what_a_class_was_promised(self) -> None:
        kernel = host(request(1, 6, SHARED))
        found = carry_out(kernel, [request(1, 6, SHARED), request(2, 6)])
        assert (found[1].state, found[2].state) == (KEPT, PENDING)
        assert "6 stay with the default group and the classes that share it" in found[2].reason.text

    def test_a_class_that_came_later_takes_what_is_left_and_grows_when_it_can(self) -> None:
        kernel = host(request(1, 7))
        found = carry_out(kernel, [request(1, 7), request(2, 6, SHARED)])
        assert found[2].state is DEGRADED and found[2].masks[0].count == 4
        assert found[2].reason.text.startswith("has 4 of 6 ways on L3 cache 0: that is all there is in the pool")
        assert carry_out(kernel, [request(2, 6, SHARED)])[2].state is KEPT

    def test_masks_move_for_a_class_too(self) -> None:
        kernel = host(request(1, 2), request(2, 2), request(3, 2))
        found = carry_out(kernel, [request(2, 2), request(3, 2), request(4, 7, SHARED)])
        assert found[4].state is KEPT

    def test_a_class_stays_where_it_is_if_it_can(self) -> None:
        kernel = host(request(1, 3), request(2, 3, SHARED))
        before = masks(kernel)[class_group(CacheRequest(3))]
        carry_out(kernel, [request(2, 3, SHARED)])
        assert masks(kernel)[class_group(CacheRequest(3))] == before

    def test_a_cap_above_the_cache_is_the_whole_pool_and_said_so(self) -> None:
        found = carry_out(Kernel(machine(11)), [request(1, 99, SHARED)])
        assert (found[1].state, found[1].group) == (DEGRADED, class_group(CacheRequest(11)))
        assert found[1].reason.text == "99 ways are asked for and an L3 cache of this host has 11"


class TestForeignGroups:
    def test_a_vm_moves_out_of_the_way_of_a_group_that_came_later(self) -> None:
        kernel = host(request(1, 3), policy=Policy(kernel_exclusive=False))
        kernel.masks["pqos"] = {0: 0x6}
        found = carry_out(kernel, [request(1, 3)], Policy(kernel_exclusive=False))
        assert found[1].state is KEPT and found[1].masks == ways({0: 0x38})

    def test_where_there_is_no_room_the_vm_keeps_its_ways_and_the_group_is_named(self) -> None:
        policy = Policy(kernel_exclusive=False)
        kernel = host(request(1, 7), policy=policy)
        kernel.masks["pqos"] = {0: 0x6}
        before = masks(kernel)
        found = carry_out(kernel, [request(1, 7)], policy)
        assert found[1].state is DEGRADED and found[1].masks == ways({0: 0x7F})
        assert found[1].reason.text == (
            "the control group pqos has ways of this VM's mask 7f on L3 cache 0, too, and there is no room to move it "
            "to: make room there, or remove the other group"
        )
        assert masks(kernel) == before
        del kernel.masks["pqos"]
        assert carry_out(kernel, [request(1, 7)], policy)[1].state is KEPT

    def test_a_group_that_was_just_made_moves_nobody(self) -> None:
        vms = [request(1, 3), request(2, 4, SHARED)]
        kernel = host(*vms)
        kernel.mkdir("qemu-1-a-vcpus_0")
        assert look(kernel, vms).prepare == ()
        assert {verdict.state for verdict in look(kernel, vms).allocations.values()} == {KEPT}
        assert carry_out(kernel, [*vms, request(3, 1)])[3].state is PENDING

    def test_the_default_group_leaves_a_foreign_group_only_where_it_must_and_joins_none(self) -> None:
        kernel = Kernel(machine(11))
        kernel.masks["containers"] = {0: 0x700}
        vms = [request(1, 5)]
        carry_out(kernel, vms)
        assert masks(kernel) == {"": 0x7E0, 1: 0x1F, "containers": 0x700}
        kernel.masks["pqos"] = {0: 0x1F}
        del kernel.masks["containers"]
        kernel.masks[vm_group(uuid(1))] = {0: 0x7E0}
        kernel.masks[""] = {0: 0x1F}
        kernel.exclusive.clear()
        carry_out(kernel, [])
        assert masks(kernel) == {"": 0x7FF, "pqos": 0x1F}

    def test_the_files_of_others_are_never_written(self) -> None:
        kernel = Kernel(machine(11))
        kernel.masks["vmqos.mine"] = {0: 0x1}
        found = look(kernel, [request(1, 2), request(2, 2, SHARED)])
        assert not [step for step in (*found.prepare, *found.retire) if step.group == "vmqos.mine"]


class TestClosids:
    def test_without_a_closid_a_vm_waits(self) -> None:
        kernel = Kernel(machine(11, closids=3))
        kernel.masks["pqos"] = {0: 0x400}
        found = carry_out(kernel, [request(1, 1), request(2, 2), request(3, 2, SHARED)])
        assert [found[number].state for number in (1, 2, 3)] == [KEPT, PENDING, PENDING]
        assert carry_out(kernel, [request(1, 1), request(2, 2)])[2].reason.text == (
            "no class of service (CLOSID) is left: of 3 one is the default group's, 1 vmqos uses, and 1 others do "
            "(pqos); with [allocation] when_full = share it would share the class next to what it asks for"
        )

    @pytest.mark.parametrize(
        ("asked", "group"),
        [
            (2, class_group(CacheRequest(2))),
            (3, class_group(CacheRequest(4))),
            (1, class_group(CacheRequest(2))),
            (5, class_group(CacheRequest(4))),
        ],
    )
    def test_or_shares_the_class_with_the_same_or_the_next_cap(self, asked: int, group: str) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        vms = [request(1, 2, SHARED), request(2, 4, SHARED)]
        kernel = host(*vms, on=machine(11, closids=3), policy=policy)
        found = carry_out(kernel, [*vms, request(3, asked)], policy)[3]
        assert (found.state, found.group) == (DEGRADED, group)
        assert found.masks == ways({0: masks(kernel)[group]})
        assert found.reason.text.endswith(f"it shares {group} instead")

    def test_or_stays_in_the_default_group_where_there_is_no_class(self) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        found = carry_out(Kernel(machine(11, closids=2)), [request(1, 2), request(2, 2)], policy)[2]
        assert (found.state, found.group, found.masks) == (DEGRADED, "", {})
        assert found.reason.text.endswith("there is no class to share: it runs in the default group")

    def test_a_closid_that_is_being_freed_is_waited_for(self) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        kernel = host(request(1, 2), request(2, 2), on=machine(11, closids=3))
        vms = [request(2, 2), request(3, 2), request(4, 2)]
        found = carry_out(kernel, vms, policy)
        assert found[3].state is PENDING
        assert found[3].reason.text == "waits for a class of service (CLOSID) that is just being freed"
        assert found[4].state is DEGRADED
        assert carry_out(kernel, vms, policy)[3].state is KEPT

    def test_a_lack_of_ways_is_told_before_a_lack_of_closids(self) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        found = carry_out(Kernel(machine(11, closids=2)), [request(1, 2), request(2, 8)], policy)[2]
        assert found.state is PENDING and "8 are asked for" in found.reason.text
