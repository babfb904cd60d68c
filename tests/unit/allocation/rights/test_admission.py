# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import SHARED, machine, request, uuid
from tests.unit.allocation.run_plan import settle
from vmqos.allocation import Group, Layout, Policy, PromiseState, Request, WhenFull, plan, reasons
from vmqos.allocation.cache_ways import Need
from vmqos.allocation.planner_input import read_input
from vmqos.allocation.rights.admission import Admission, Change, admit
from vmqos.allocation.rights.claims import read
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import Owner, class_group, vm_group
from vmqos.resctrl.bitmask import CapacityBitmask


def decide(
    kernel: Kernel,
    *requests: Request,
    policy: Policy | None = None,
    barred: str = "",
    frozen: int = -1,
) -> Admission:
    inputs = read_input(kernel.capabilities, kernel.layout(), policy or Policy(), requests)
    return admit(inputs, read(inputs), {(barred, False)}, {frozen})


def test_what_vms_have_comes_before_what_they_want_more_and_that_before_newcomers() -> None:
    kernel = Kernel(machine(11))
    settle(kernel, [request(2, 3), request(3, 2)], Policy())
    result = decide(kernel, request(1, 4), request(2, 6), request(3, 2))
    assert set(result.served) == {uuid(2), uuid(3)}
    assert {key: wanted.length for key, wanted in result.budgets[0].wanted_masks.items()} == {uuid(2): 6, uuid(3): 2}
    assert result.changes == [Change(uuid(2), frozenset({0}))]


def test_a_class_keeps_what_it_has_and_no_more_than_its_cap() -> None:
    kernel = Kernel(machine(11))
    settle(kernel, [request(1, 4, SHARED)], Policy())
    kernel.masks[class_group(CacheRequest(4))] = {0: 0x7FF}
    assert decide(kernel, request(1, 4, SHARED)).budgets[0].need == Need(4, 2)


def test_a_class_is_counted_where_its_vms_can_run() -> None:
    result = decide(Kernel(machine(11, (0, 1))), request(1, 5, SHARED, caches=[1]))
    assert {cache: budget.need.width for cache, budget in result.budgets.items()} == {0: 2, 1: 5}


def test_who_is_barred_gets_no_more_than_it_has() -> None:
    kernel = Kernel(machine(11))
    settle(kernel, [request(1, 2), request(2, 3, SHARED)], Policy())
    grown = (request(1, 3), request(2, 3, SHARED), request(3, 1))
    result = decide(kernel, *grown, barred=uuid(1))
    assert result.notes == {uuid(1): reasons.NO_SAFE_ORDER} and result.budgets[0].wanted_masks[uuid(1)].length == 2
    result = decide(kernel, *grown, barred=uuid(3))
    assert result.notes == {uuid(3): reasons.NO_SAFE_ORDER} and uuid(3) not in result.served
    result = decide(Kernel(machine(11)), request(1, 5, SHARED), barred=class_group(CacheRequest(5)))
    assert result.classes == {class_group(CacheRequest(5)): 5} and result.budgets[0].need.width == 2


def test_on_a_frozen_cache_nothing_changes() -> None:
    kernel = Kernel(machine(11))
    settle(kernel, [request(1, 2)], Policy())
    result = decide(kernel, request(1, 3), request(2, 1), frozen=0)
    assert set(result.notes.values()) == {reasons.NO_SAFE_ORDER}
    assert result.budgets[0].stuck == {uuid(1): 0x3} and not result.changes


def test_the_host_stays_on_reserved_ways_where_it_has_no_others() -> None:
    kernel = Kernel(machine(4))
    settle(kernel, [request(1, 2)], Policy())
    assert kernel.masks[""] == {0: 0b1100}
    budget = decide(kernel, request(1, 2), policy=Policy(reserved_ways=CapacityBitmask(0b1100))).budgets[0]
    assert budget.need == Need(2, 0) and budget.closed and budget.cache_ways.pool == 0b1111


def test_a_group_that_can_not_be_filled_is_one_to_be_freed() -> None:
    kernel = Kernel(machine(11, (0, 1), closids=3))
    kernel.mkdir(vm_group(uuid(1)))
    kernel.masks["pqos"] = {0: 0x7FF, 1: 0}
    result = decide(kernel, request(1, 10), request(2, 2, caches=[1]))
    assert uuid(1) not in result.served
    assert result.notes[uuid(2)] == reasons.WAITS_FOR_CLOSID


def test_many_who_ask_the_same_get_the_same_answer() -> None:
    policy = Policy(when_full=WhenFull.SHARE)
    result = decide(Kernel(machine(11, closids=2)), *(request(number, 2) for number in range(1, 50)), policy=policy)
    assert len(result.served) == 1 and len(result.sharing) == 48
    result = decide(Kernel(machine(11)), *(request(number, 9) for number in range(1, 50)))
    assert len(result.served) == 1 and len(set(result.notes.values())) == 1


def test_a_pseudo_locked_group_takes_ways_and_no_closid() -> None:
    kernel = Kernel(machine(11, closids=2))
    locked = Group("realtime", Owner.FOREIGN, {0: CapacityBitmask(0x3)}, exclusive=True, holds_closid=False)
    kernel.masks[""] = {0: 0x7FC}
    layout = Layout((*kernel.layout().groups, locked))
    found = plan(kernel.capabilities, layout, [request(1, 7), request(2, 1)], Policy())
    assert {vm: given.state for vm, given in found.allocations.items()} == {
        uuid(1): PromiseState.KEPT,
        uuid(2): PromiseState.PENDING,
    }
    assert not found.allocations[uuid(1)].masks[0].overlaps(CapacityBitmask(0x3))
    found = plan(kernel.capabilities, layout, [request(1, 1), request(2, 1)], Policy())
    assert "realtime" not in found.allocations[uuid(2)].reason.text, (
        "who holds no CLOSID is not to blame for there being none"
    )
