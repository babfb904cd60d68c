# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.run_plan import follow, settle
from tests.unit.allocation.worlds import EXCLUSIVE, SHARED, machine, request, uuid
from vmqos.allocation import (
    CreateGroup,
    Plan,
    Policy,
    PromiseState,
    RemoveGroup,
    Request,
    SetExclusive,
    Verdict,
    WhenFull,
    WriteMasks,
    class_group,
    plan,
    vm_group,
    whatif,
)
from vmqos.openstack.extra_specs import CacheRequest
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities

KEPT, PENDING, DEGRADED = PromiseState.KEPT, PromiseState.PENDING, PromiseState.DEGRADED
DEFAULT = Policy()
IO = 0x600


def host(*requests: Request, policy: Policy = DEFAULT, on: Capabilities | None = None) -> Kernel:
    """A machine of 11 ways on which these VMs were served."""
    kernel = Kernel(on or machine(11))
    settle(kernel, requests, policy)
    return kernel


def look(kernel: Kernel, requests: Iterable[Request], policy: Policy = DEFAULT) -> Plan:
    return plan(kernel.capabilities, kernel.layout(), list(requests), policy)


def carry_out(kernel: Kernel, requests: Iterable[Request], policy: Policy = DEFAULT) -> dict[int, Verdict]:
    """Plan once and do it; the verdicts by the VMs' numbers."""
    requests = list(requests)
    found = look(kernel, requests, policy)
    follow(kernel, requests, policy, found)
    return {int(key[:8], 16): verdict for key, verdict in found.verdicts.items()}


def masks(kernel: Kernel, cache: int = 0) -> dict[str | int, int]:
    """The groups' ways: VMs by number, the default group as "", others by name."""
    return {
        int(name[6:14], 16) if name.startswith("vmqos.0") else name: mask[cache] for name, mask in kernel.masks.items()
    }


def ways(masks: Mapping[int, int]) -> Mapping[int, CapacityBitmask]:
    return {cache: CapacityBitmask(mask) for cache, mask in masks.items()}


def test_the_first_vm_gets_its_ways_after_the_default_group_left_them() -> None:
    found = look(Kernel(machine(11, (0, 1), IO)), [request(1, 3, caches=(0, 1))])
    name = vm_group(uuid(1))
    assert found.prepare == (
        WriteMasks("", ways({0: 0x7F8, 1: 0x7F8})),
        CreateGroup(name),
        WriteMasks(name, ways({0: 0x7, 1: 0x7})),
        SetExclusive(name, True),
    )
    assert found.retire == ()
    assert found.verdicts == {uuid(1): Verdict(uuid(1), KEPT, name, ways({0: 0x7, 1: 0x7}))}


def test_a_vm_takes_no_ways_where_it_can_not_run() -> None:
    kernel = host(request(1, 3, caches=[0]), request(2, 2, caches=[1]), on=machine(11, (0, 1)))
    assert masks(kernel, 0) == {"": 0x7F8, 1: 0x7, 2: 0x7F8}
    assert masks(kernel, 1) == {"": 0x7FC, 1: 0x7FC, 2: 0x3}
    assert not kernel.exclusive


def test_a_vm_is_placed_on_all_of_its_caches_or_nowhere() -> None:
    kernel = Kernel(machine(11, (0, 1)))
    found = carry_out(kernel, [request(1, 6, caches=[1]), request(2, 6, caches=[0, 1])])
    assert found[2].state is PENDING and found[2].group == "" and not found[2].masks
    assert found[2].reason.startswith("L3 cache 1 has 3 ways to give in one piece and 6 are asked for")
    assert masks(kernel, 0) == {"": 0x7FF, 1: 0x7FF}


def test_ways_of_io_are_given_out_last_and_only_if_the_operator_allows_it() -> None:
    wants = [request(1, 9, caches=[0])]
    assert carry_out(Kernel(machine(12, shareable=0xC00)), wants)[1].masks == ways({0: 0x1FF})
    wants = [request(1, 11, caches=[0])]
    found = carry_out(Kernel(machine(13, shareable=0x3)), wants)
    assert found[1].state is KEPT and found[1].masks == ways({0: 0x1FFC})
    wants = [request(1, 12)]
    allowed = Policy(use_shareable_ways=True, default_ways_min=1)
    assert carry_out(Kernel(machine(13, shareable=0x3)), wants)[1].state is PENDING
    kernel = Kernel(machine(13, shareable=0x3))
    assert carry_out(kernel, wants, allowed)[1].masks == ways({0: 0x1FFE})
    assert not kernel.exclusive, "the kernel guards no group with ways of I/O"


def test_a_request_below_the_smallest_mask_is_rounded_up_with_a_remark() -> None:
    found = carry_out(Kernel(machine(20, fewest=2)), [request(1, 1), request(2, 1, SHARED)])
    for number in (1, 2):
        assert found[number].state is KEPT and found[number].masks[0].count == 2
        assert found[number].reason == "gets 2 ways for the 1 asked for: a mask has at least 2 ways on this machine"
    assert found[2].group == class_group(2)


def test_reserved_ways_are_left_to_others_even_by_the_default_group() -> None:
    policy = Policy(reserved_ways=CapacityBitmask(0x3))
    assert masks(host(request(1, 2), policy=policy)) == {"": 0x7F0, 1: 0xC}


class TestArrival:
    def test_who_came_first_is_served_first_and_a_smaller_later_one_is_not_blocked(self) -> None:
        vms = [
            request(1, 5, arrival=20),
            request(2, 6, arrival=10),
            request(3, 4, arrival=30),
            request(4, 3, arrival=40),
        ]
        found = carry_out(Kernel(machine(11)), vms)
        assert [found[number].state for number in (1, 2, 3, 4)] == [PENDING, KEPT, PENDING, KEPT]

    def test_of_two_that_came_together_the_lower_uuid_is_first(self) -> None:
        found = carry_out(Kernel(machine(11)), [request(2, 6, arrival=1), request(1, 6, arrival=1)])
        assert (found[1].state, found[2].state) == (KEPT, PENDING)

    def test_who_has_something_keeps_it_when_somebody_older_asks(self) -> None:
        kernel = host(request(2, 6))
        found = carry_out(kernel, [request(1, 6), request(2, 6)])
        assert (found[1].state, found[2].state) == (PENDING, KEPT)

    def test_a_vm_that_waits_is_served_when_another_goes(self) -> None:
        kernel = host(request(1, 6), request(2, 6))
        assert carry_out(kernel, [request(2, 6)])[2].state is KEPT
        assert masks(kernel) == {"": 0x7C0, 2: 0x3F}

    def test_a_vm_that_is_named_twice_is_served_once(self) -> None:
        found = carry_out(Kernel(machine(11)), [request(1, 2), request(1, 4, arrival=9)])
        assert found[1].masks[0].count == 2


class TestRoom:
    def test_masks_move_to_make_room_in_one_piece_as_few_as_possible(self) -> None:
        vms = [request(number, 2) for number in (1, 2, 3, 4)]
        kernel = host(*vms)
        assert masks(kernel) == {"": 0x700, 1: 0x3, 2: 0xC, 3: 0x30, 4: 0xC0}
        rest = [vms[1], vms[3], request(5, 4)]
        found = carry_out(kernel, rest)
        assert found[5].state is KEPT
        moved = [number for number, before in ((2, 0xC), (4, 0xC0)) if masks(kernel)[number] != before]
        assert len(moved) == 1

    def test_a_foreign_group_in_the_way_of_a_newcomer_is_packed_around(self) -> None:
        kernel = Kernel(machine(11))
        kernel.masks["pqos"] = {0: 0x30}
        assert carry_out(kernel, [request(1, 4), request(2, 3)])[2].state is KEPT
        assert masks(kernel) == {"": 0xF0, 1: 0xF, 2: 0x700, "pqos": 0x30}

    def test_the_reason_tells_where_the_ways_are(self) -> None:
        kernel = Kernel(machine(11, shareable=IO))
        kernel.masks["qemu-1-a"] = {0: 0x4}
        policy = Policy(reserved_ways=CapacityBitmask(0x1))
        found = carry_out(kernel, [request(1, 2), request(2, 6)], policy)
        assert found[2].reason == (
            "L3 cache 0 has 4 ways to give in one piece and 6 are asked for: of its 11 ways 2 are other VMs', "
            "2 stay with the default group ([allocation] default_ways_min = 2), "
            "2 are I/O's ([allocation] use_shareable_ways = true would give them out), "
            "1 is reserved ([allocation] reserved_ways), 1 is taken by qemu-1-a"
        )

    def test_the_reason_tells_what_no_host_of_this_kind_can_give(self) -> None:
        found = carry_out(Kernel(machine(11, (0, 1))), [request(1, 12, caches=(0, 1))])
        assert found[1].reason == (
            "L3 cache 0 has 9 ways to give in one piece and 12 are asked for: of its 11 ways "
            "2 stay with the default group ([allocation] default_ways_min = 2); "
            "with no other VM there it would be 9; the same on L3 cache 1"
        )

    def test_masks_that_can_not_pass_each_other_stay(self) -> None:
        # Two ways are free, one on either side of the foreign group; to bring them together VM 1 and the default group
        # would have to swap places, and each is as small as it may be.
        kernel = Kernel(machine(7, fewest=2))
        kernel.masks |= {"": {0: 0b1100000}, vm_group(uuid(1)): {0: 0b0000011}, "pqos": {0: 0b0001100}}
        vms = [request(1, 3)]
        found = carry_out(kernel, vms)
        assert found[1].state is DEGRADED and found[1].masks == ways({0: 0b11})


class TestResize:
    def test_a_vm_grows_where_it_is_if_it_can(self) -> None:
        kernel = host(request(1, 2))
        assert carry_out(kernel, [request(1, 4)])[1].masks == ways({0: 0xF})

    def test_else_somebody_moves(self) -> None:
        kernel = host(request(1, 2), request(2, 2))
        assert carry_out(kernel, [request(1, 4), request(2, 2)])[1].state is KEPT
        assert sorted(mask.bit_count() for mask in masks(kernel).values()) == [2, 4, 5]

    def test_what_can_not_grow_keeps_what_it_has(self) -> None:
        kernel = host(request(1, 2), request(2, 6))
        before = masks(kernel)
        found = carry_out(kernel, [request(1, 4), request(2, 6)])
        assert found[1].state is DEGRADED and found[1].masks == ways({0: before[1]})
        assert found[1].reason.startswith("has 2 of 4 ways on L3 cache 0: L3 cache 0 has 3 ways to give in one piece")
        assert masks(kernel) == before

    def test_a_vm_always_shrinks(self) -> None:
        kernel = host(request(1, 6), request(2, 3))
        assert carry_out(kernel, [request(1, 1), request(2, 3)])[1].masks[0].count == 1
        assert masks(kernel)[""].bit_count() == 5

    def test_a_vm_that_may_run_on_another_cache_gets_ways_there_or_is_degraded(self) -> None:
        kernel = host(request(1, 3, caches=[0]), request(2, 7, caches=[1]), on=machine(11, (0, 1)))
        found = carry_out(kernel, [request(1, 3, caches=[0, 1]), request(2, 7, caches=[1])])
        assert found[1].state is DEGRADED and found[1].masks == ways({0: 0x7})
        assert found[1].reason.startswith("has 0 of 3 ways on L3 cache 1")
        found = carry_out(kernel, [request(1, 3, caches=[0, 1])])
        assert found[1].state is KEPT and found[1].masks[1].count == 3

    def test_a_vm_that_leaves_a_cache_gives_its_ways_back_there(self) -> None:
        kernel = host(request(1, 3, caches=[0, 1]), on=machine(11, (0, 1)))
        assert kernel.exclusive
        carry_out(kernel, [request(1, 3, caches=[0])])
        assert masks(kernel, 1) == {"": 0x7FF, 1: 0x7FF} and not kernel.exclusive

    def test_exclusive_becomes_shared_and_exclusive_again(self) -> None:
        kernel = host(request(1, 3))
        assert carry_out(kernel, [request(1, 3, SHARED)])[1].group == class_group(3)
        assert set(kernel.masks) == {"", class_group(3)}
        assert carry_out(kernel, [request(1, 3)])[1].state is KEPT
        assert set(kernel.masks) == {"", vm_group(uuid(1))}


class TestClasses:
    def test_vms_with_the_same_cap_share_a_class_till_the_last_one_goes(self) -> None:
        kernel = host(request(1, 2, SHARED), request(2, 2, SHARED), request(3, 4, SHARED))
        assert set(kernel.masks) == {"", class_group(2), class_group(4)}
        found = look(kernel, [request(2, 2, SHARED)])
        assert found.retire == (RemoveGroup(class_group(4)),)
        follow(kernel, [request(2, 2, SHARED)], DEFAULT, found)
        settle(kernel, [], DEFAULT)
        assert masks(kernel) == {"": 0x7FF}

    def test_a_class_lies_within_the_default_groups_ways(self) -> None:
        kernel = host(request(1, 4, SHARED), request(2, 5))
        assert masks(kernel) == {"": 0x7E0, 2: 0x1F, class_group(4): 0x1E0}

    def test_no_later_vm_takes_from_what_a_class_was_promised(self) -> None:
        kernel = host(request(1, 6, SHARED))
        found = carry_out(kernel, [request(1, 6, SHARED), request(2, 6)])
        assert (found[1].state, found[2].state) == (KEPT, PENDING)
        assert "6 stay with the default group and the classes that share it" in found[2].reason

    def test_a_class_that_came_later_takes_what_is_left_and_grows_when_it_can(self) -> None:
        kernel = host(request(1, 7))
        found = carry_out(kernel, [request(1, 7), request(2, 6, SHARED)])
        assert found[2].state is DEGRADED and found[2].masks[0].count == 4
        assert found[2].reason.startswith("has 4 of 6 ways on L3 cache 0: that is all there is in the pool")
        assert carry_out(kernel, [request(2, 6, SHARED)])[2].state is KEPT

    def test_masks_move_for_a_class_too(self) -> None:
        kernel = host(request(1, 2), request(2, 2), request(3, 2))
        found = carry_out(kernel, [request(2, 2), request(3, 2), request(4, 7, SHARED)])
        assert found[4].state is KEPT

    def test_a_class_stays_where_it_is_if_it_can(self) -> None:
        kernel = host(request(1, 3), request(2, 3, SHARED))
        before = masks(kernel)[class_group(3)]
        carry_out(kernel, [request(2, 3, SHARED)])
        assert masks(kernel)[class_group(3)] == before

    def test_a_cap_above_the_cache_is_the_whole_pool_and_said_so(self) -> None:
        found = carry_out(Kernel(machine(11)), [request(1, 99, SHARED)])
        assert (found[1].state, found[1].group) == (DEGRADED, class_group(11))
        assert found[1].reason == "99 ways are asked for and an L3 cache of this host has 11"


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
        assert found[1].reason == (
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
        assert {verdict.state for verdict in look(kernel, vms).verdicts.values()} == {KEPT}
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
        assert carry_out(kernel, [request(1, 1), request(2, 2)])[2].reason == (
            "no class of service (CLOSID) is left: of 3 one is the default group's, 1 vmqos uses, and 1 others do "
            "(pqos); with [allocation] when_full = share it would share the class next to what it asks for"
        )

    @pytest.mark.parametrize(
        ("asked", "group"),
        [(2, class_group(2)), (3, class_group(4)), (1, class_group(2)), (5, class_group(4))],
    )
    def test_or_shares_the_class_with_the_same_or_the_next_cap(self, asked: int, group: str) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        vms = [request(1, 2, SHARED), request(2, 4, SHARED)]
        kernel = host(*vms, on=machine(11, closids=3), policy=policy)
        found = carry_out(kernel, [*vms, request(3, asked)], policy)[3]
        assert (found.state, found.group) == (DEGRADED, group)
        assert found.masks == ways({0: masks(kernel)[group]})
        assert found.reason.endswith(f"it shares {group} instead")

    def test_or_stays_in_the_default_group_where_there_is_no_class(self) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        found = carry_out(Kernel(machine(11, closids=2)), [request(1, 2), request(2, 2)], policy)[2]
        assert (found.state, found.group, found.masks) == (DEGRADED, "", {})
        assert found.reason.endswith("there is no class to share: it runs in the default group")

    def test_a_closid_that_is_being_freed_is_waited_for(self) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        kernel = host(request(1, 2), request(2, 2), on=machine(11, closids=3))
        vms = [request(2, 2), request(3, 2), request(4, 2)]
        found = carry_out(kernel, vms, policy)
        assert found[3].state is PENDING
        assert found[3].reason == "waits for a class of service (CLOSID) that is just being freed"
        assert found[4].state is DEGRADED
        assert carry_out(kernel, vms, policy)[3].state is KEPT

    def test_a_lack_of_ways_is_told_before_a_lack_of_closids(self) -> None:
        policy = Policy(when_full=WhenFull.SHARE)
        found = carry_out(Kernel(machine(11, closids=2)), [request(1, 2), request(2, 8)], policy)[2]
        assert found.state is PENDING and "8 are asked for" in found.reason


class TestGuards:
    def test_the_guard_is_taken_off_before_the_ways_are_given_back(self) -> None:
        kernel = host(request(1, 3))
        name = vm_group(uuid(1))
        found = look(kernel, [])
        assert found.prepare[0] == SetExclusive(name, False)
        assert found.prepare[1:] == (WriteMasks("", ways({0: 0x7FF})), WriteMasks(name, ways({0: 0x7FF})))
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
        assert found.prepare == found.retire == () and found.verdicts[uuid(1)].state is PENDING

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
            pytest.param(
                Capabilities(
                    {
                        name: CacheResource(name, 8, CapacityBitmask(0x7FF), 1, CapacityBitmask(), False, (0,))
                        for name in ("L3CODE", "L3DATA")
                    }
                ),
                "resctrl is mounted with cdp, which hw:cache_ways does not support yet",
                id="CDP",
            ),
        ],
    )
    def test_a_machine_that_can_not_do_it_says_why(self, capabilities: Capabilities, words: str) -> None:
        vms = [request(1, 2), request(2, 2, SHARED)]
        found = plan(capabilities, Kernel(machine(11)).layout(), vms, DEFAULT)
        assert found.prepare == found.retire == ()
        for verdict in found.verdicts.values():
            assert verdict.state is PENDING and words in verdict.reason

    def test_a_vm_on_caches_that_are_offline_waits(self) -> None:
        found = carry_out(Kernel(machine(11)), [request(1, 2, caches=[7])])
        assert found[1].state is PENDING and "online" in found[1].reason

    def test_a_vm_that_asks_for_no_ways_gets_none(self) -> None:
        nothing = Request(uuid(1), CacheRequest(), frozenset({0}), 1)
        assert look(Kernel(machine(11)), [nothing]).verdicts == {uuid(1): Verdict(uuid(1), PromiseState.NONE)}


class TestWhatIf:
    def test_it_tells_what_one_more_vm_would_get(self) -> None:
        kernel = host(request(1, 4))
        wants = CacheRequest(ways=5, policy=EXCLUSIVE)
        verdict, found = whatif(kernel.capabilities, kernel.layout(), [request(1, 4)], DEFAULT, wants, frozenset({0}))
        assert verdict.state is KEPT and verdict.masks[0].count == 5
        assert found.prepare and set(found.verdicts) == {uuid(1), verdict.uuid}

    def test_who_waits_already_comes_first(self) -> None:
        kernel = host(request(1, 4))
        vms = [request(1, 4), request(2, 5)]
        verdict, _ = whatif(kernel.capabilities, kernel.layout(), vms, DEFAULT, CacheRequest(ways=5), frozenset({0}))
        assert verdict.state is PENDING
