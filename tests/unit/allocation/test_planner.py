# SPDX-License-Identifier: Apache-2.0
"""Which VM gets which ways, and when."""

from __future__ import annotations

from tests.unit.allocation.examples import DEGRADED, IO, KEPT, PENDING, carry_out, host, look, masks, ways
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from vmqos.allocation import Allocation, CreateGroup, Policy, SetExclusive, WriteMasks
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import class_group, vm_group
from vmqos.resctrl.bitmask import CapacityBitmask


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
    assert found.allocations == {uuid(1): Allocation(KEPT, name, ways({0: 0x7, 1: 0x7}))}


def test_a_vm_takes_no_ways_where_it_can_not_run() -> None:
    kernel = host(request(1, 3, caches=[0]), request(2, 2, caches=[1]), on=machine(11, (0, 1)))
    assert masks(kernel, 0) == {"": 0x7F8, 1: 0x7, 2: 0x7F8}
    assert masks(kernel, 1) == {"": 0x7FC, 1: 0x7FC, 2: 0x3}
    assert not kernel.exclusive


def test_a_vm_is_placed_on_all_of_its_caches_or_nowhere() -> None:
    kernel = Kernel(machine(11, (0, 1)))
    found = carry_out(kernel, [request(1, 6, caches=[1]), request(2, 6, caches=[0, 1])])
    assert found[2].state is PENDING and found[2].group == "" and not found[2].masks
    assert found[2].reason.text.startswith("L3 cache 1 has 3 ways to give in one piece and 6 are asked for")
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
        assert (
            found[number].reason.text == "gets 2 ways for the 1 asked for: a mask has at least 2 ways on this machine"
        )
    assert found[2].group == class_group(CacheRequest(2))


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
        assert found[2].reason.text == (
            "L3 cache 0 has 4 ways to give in one piece and 6 are asked for: of its 11 ways 2 are other VMs', "
            "2 stay with the default group ([allocation] default_ways_min = 2), "
            "2 are I/O's ([allocation] use_shareable_ways = true would give them out), "
            "1 is reserved ([allocation] reserved_ways), 1 is taken by qemu-1-a"
        )

    def test_the_reason_tells_what_no_host_of_this_kind_can_give(self) -> None:
        found = carry_out(Kernel(machine(11, (0, 1))), [request(1, 12, caches=(0, 1))])
        assert found[1].reason.text == (
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
        assert found[1].reason.text.startswith("has 2 of 4 ways on L3 cache 0: L3 cache 0 has 3 ways to give")
        assert masks(kernel) == before

    def test_a_vm_always_shrinks(self) -> None:
        kernel = host(request(1, 6), request(2, 3))
        assert carry_out(kernel, [request(1, 1), request(2, 3)])[1].masks[0].count == 1
        assert masks(kernel)[""].bit_count() == 5

    def test_a_vm_that_may_run_on_another_cache_gets_ways_there_or_is_degraded(self) -> None:
        kernel = host(request(1, 3, caches=[0]), request(2, 7, caches=[1]), on=machine(11, (0, 1)))
        found = carry_out(kernel, [request(1, 3, caches=[0, 1]), request(2, 7, caches=[1])])
        assert found[1].state is DEGRADED and found[1].masks == ways({0: 0x7})
        assert found[1].reason.text.startswith("has 0 of 3 ways on L3 cache 1")
        found = carry_out(kernel, [request(1, 3, caches=[0, 1])])
        assert found[1].state is KEPT and found[1].masks[1].count == 3

    def test_a_vm_that_leaves_a_cache_gives_its_ways_back_there(self) -> None:
        kernel = host(request(1, 3, caches=[0, 1]), on=machine(11, (0, 1)))
        assert kernel.exclusive
        carry_out(kernel, [request(1, 3, caches=[0])])
        assert masks(kernel, 1) == {"": 0x7FF, 1: 0x7FF} and not kernel.exclusive

    def test_exclusive_becomes_shared_and_exclusive_again(self) -> None:
        kernel = host(request(1, 3))
        assert carry_out(kernel, [request(1, 3, SHARED)])[1].group == class_group(CacheRequest(3))
        assert set(kernel.masks) == {"", class_group(CacheRequest(3))}
        assert carry_out(kernel, [request(1, 3)])[1].state is KEPT
        assert set(kernel.masks) == {"", vm_group(uuid(1))}
