# SPDX-License-Identifier: Apache-2.0
"""L2 ways for VMs that are pinned to cores."""

from __future__ import annotations

from tests.unit.allocation.examples import DEFAULT, carry_out, host, look, masks
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import settle
from vmqos.allocation import Group, Layout, Policy, PromiseState, caches, plan
from vmqos.group_names import Owner, vm_group
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities

KEPT, PENDING, DEGRADED = PromiseState.KEPT, PromiseState.PENDING, PromiseState.DEGRADED
L2 = [caches.l2(number) for number in range(3)]


def with_l2(**fields: bool) -> Kernel:
    """11 L3 ways, and three L2s of 8."""
    return Kernel(machine(l2=True, **fields))  # type: ignore[arg-type]


def test_a_pinned_vm_gets_ways_of_its_own_in_the_l2s_of_its_cores() -> None:
    kernel = with_l2()
    found = carry_out(kernel, [request(1, l2=3, cores=[0, 2])])[1]
    assert found.state is KEPT and {cache: mask.count for cache, mask in found.masks.items()} == {L2[0]: 3, L2[2]: 3}
    for cache in (L2[0], L2[2]):
        assert not masks(kernel, cache)[1] & masks(kernel, cache)[""] and masks(kernel, cache)[""].bit_count() == 5
    assert masks(kernel, L2[1]) == {1: 0xFF, "": 0xFF} and masks(kernel) == {1: 0x7FF, "": 0x7FF}


def test_two_vms_on_one_core_do_not_meet_and_the_floor_stays() -> None:
    kernel = with_l2()
    vms = [request(n, l2=3, cores=[1]) for n in (1, 2, 3)]
    found = carry_out(kernel, vms)
    assert [found[n].state for n in (1, 2, 3)] == [KEPT, KEPT, PENDING]
    assert found[3].reason.text.startswith("L2 cache 1 has no ways to give in one piece and 3 are asked for: of its 8")
    assert masks(kernel, L2[1])[""].bit_count() == 2


def test_l3_and_l2_ways_are_one_promise() -> None:
    kernel = with_l2()
    vms = [request(1, 4, l2=4, cores=[0]), request(2, 4, l2=4, cores=[0]), request(3, 4, l2=4, cores=[1])]
    found = carry_out(kernel, vms)
    assert [found[n].state for n in (1, 2, 3)] == [KEPT, PENDING, KEPT]
    assert "L2 cache 0" in found[2].reason.text and found[2].group == ""
    assert {cache: mask.count for cache, mask in found[3].masks.items()} == {0: 4, L2[1]: 4}


def test_who_is_not_pinned_waits_or_gets_the_rest() -> None:
    found = carry_out(with_l2(), [request(1, l2=3), request(2, 3, l2=3), request(3, 3, SHARED, l2=3)])
    assert [found[n].state for n in (1, 2, 3)] == [PENDING, DEGRADED, DEGRADED]
    assert all("hw:l2_cache_ways needs each vCPU to be pinned" in found[n].reason.text for n in (1, 2, 3))
    assert found[2].masks[0].count == 3 and found[3].group == "vmqos.shared-ways3"


def test_without_l2_cat_the_reason_says_so() -> None:
    found = carry_out(Kernel(machine()), [request(1, l2=3), request(2, 3, l2=3)])
    assert [found[n].state for n in (1, 2)] == [PENDING, DEGRADED]
    assert all("this host's L2 caches can't be partitioned" in found[n].reason.text for n in (1, 2))


def test_a_class_caps_l2_too_and_is_named_so() -> None:
    kernel = with_l2()
    found = carry_out(kernel, [request(n, 3, SHARED, l2=2, cores=[n]) for n in (0, 1)])
    name = "vmqos.shared-ways3-l2ways2"
    assert [found[n].group for n in (0, 1)] == [name, name] and found[0].state is KEPT
    assert {cache: mask.bit_count() for cache, mask in kernel.masks[name].items()} == {
        0: 3, **dict.fromkeys(L2, 2)
    }  # fmt: skip


def test_a_vm_that_is_pinned_elsewhere_takes_its_promise_along() -> None:
    kernel = host(request(1, l2=3, cores=[0]), on=machine(l2=True))
    settle(kernel, [request(1, l2=3, cores=[1])], DEFAULT)
    name = vm_group(uuid(1))
    assert kernel.masks[name][L2[0]] == kernel.masks[""][L2[0]] == 0xFF
    assert not kernel.masks[name][L2[1]] & kernel.masks[""][L2[1]]


def test_when_it_is_gone_the_l2s_are_whole_and_nobody_has_to_do_with_them() -> None:
    kernel = host(request(1, l2=3, cores=[0]), on=machine(l2=True))
    settle(kernel, [], DEFAULT)
    assert kernel.masks == {"": {0: 0x7FF, **dict.fromkeys(L2, 0xFF)}}
    found = look(kernel, [request(2, 3)])
    assert all(caches.level(cache) == 3 for step in found.prepare[:1] for cache in getattr(step, "masks", {}))


def test_what_a_foreign_group_has_of_an_l2_is_taken() -> None:
    kernel = with_l2()
    kernel.masks |= {"": {0: 0x7FF, **dict.fromkeys(L2, 0xF0)}, "pqos": {0: 0x7FF, **dict.fromkeys(L2, 0x0F)}}
    found = carry_out(kernel, [request(1, l2=2, cores=[0]), request(2, l2=3, cores=[0])])
    assert [found[n].state for n in (1, 2)] == [KEPT, PENDING] and "4 are taken by pqos" in found[2].reason.text
    assert found[1].masks[L2[0]].bits & 0xF == 0


def test_the_reserve_is_of_l3_alone() -> None:
    policy = Policy(reserved_ways=CapacityBitmask(0xF))
    found = carry_out(with_l2(), [request(1, l2=6, cores=[0])], policy)[1]
    assert found.state is KEPT and found.reason.text == ""


def test_code_and_data_fill_the_same_l2_ways() -> None:
    kernel = with_l2(cdp=True, cdpl2=True)
    found = carry_out(kernel, [request(1, parts=(1, 2), l2=3, cores=[0])])[1]
    own = kernel.parts(vm_group(uuid(1)))
    assert found.state is KEPT and own[L2[0]].code == own[L2[0]].data == found.masks[L2[0]]
    assert own[0].is_apart and own[0].data.count == 2


def test_a_vm_with_all_caches_to_itself_is_guarded_by_the_kernel() -> None:
    kernel = with_l2()
    carry_out(kernel, [request(1, 3, l2=3, cores=[0, 1, 2]), request(2, 3, l2=3, cores=[0])])
    assert kernel.exclusive == {vm_group(uuid(1))}


def test_a_machine_with_nothing_but_l2_gives_l2_ways() -> None:
    l2 = machine(l2=True).caches["L2"]
    whole = {caches.l2(cache): l2.cbm_mask for cache in l2.cache_ids}
    vms = [request(1, l2=3, cores=[0]), request(2, 3, l2=3, cores=[1])]
    found = plan(Capabilities({"L2": l2}), Layout((Group("", Owner.DEFAULT, whole),)), vms, Policy())
    one, two = (found.allocations[uuid(n)] for n in (1, 2))
    assert one.state is KEPT and one.masks.keys() == {L2[0]}
    assert two.state is DEGRADED and "L3 cache can't be partitioned" in two.reason.text and two.masks.keys() == {L2[1]}
