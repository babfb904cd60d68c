# SPDX-License-Identifier: Apache-2.0
"""What a pass does where the kernel refuses a step of its plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.agent.host import CLASS, OWN, SHARED, Host
from tests.unit.agent.refusals import (
    assert_counted_once_the_kernel_refuses_nothing,
    group_refused,
    refuse_tasks,
    writes_refused,
)
from tests.unit.agent.starting import MakeStart, Start
from vmqos import allocation
from vmqos.agent.act.task_placer import YET_TO_BE_MOVED
from vmqos.agent.observe import cache_vcpus
from vmqos.allocation import PromiseState
from vmqos.group_names import vm_group
from vmqos.hypervisor import vm_tasks
from vmqos.reason import Code

SHARED_4, LIMIT = {**SHARED, "hw:cache_ways": "4"}, {"hw:mem_bandwidth_percent": "50"}
KEPT, DEGRADED, PENDING = PromiseState.KEPT, PromiseState.DEGRADED, PromiseState.PENDING


def refuse_the_masks_of(host: Host, vm: str) -> None:
    """Have the kernel refuse the next write to the masks of a VM's own group."""

    def refuse(path: str) -> None:
        if path == f"vmqos.{vm}/schemata":
            host.resctrl.before = lambda path: None
            raise OSError(28, "No space left on device")

    host.resctrl.before = refuse


def test_a_vm_that_waits_because_the_kernel_refused_another_vms_step_is_told_so(host: Host) -> None:
    first, second = host.boot(OWN), host.boot(OWN)
    refuse_the_masks_of(host, first)
    host.run()
    assert host.told(second).state is PromiseState.PENDING
    assert host.told(second).reason.code is Code.REFUSED and first in host.told(second).reason.text


def test_a_group_that_could_not_be_given_its_ways_takes_none_of_another_vm(host: Host) -> None:
    first, second = host.boot(OWN), host.boot(OWN)
    refuse_the_masks_of(host, first)
    host.settle()
    assert host.told(first).state is PromiseState.PENDING and host.groups() == {f"vmqos.{second}"}
    assert host.told(second).state is KEPT
    host.clock += 1.0
    host.settle()
    assert host.told(first).state is KEPT


def test_a_class_that_could_not_be_given_its_ways_twice_brings_no_vm_to_ways_of_another(host: Host) -> None:
    own = host.boot(OWN)
    host.settle()
    shares = host.boot(SHARED)
    for _ in range(2):
        # The kernel's first mask of a group has all ways that it does not guard.
        with writes_refused(host, f"{CLASS}/schemata"):
            host.run()
        assert int(host.mask(CLASS), 16) & int(host.mask(vm_group(own)), 16)
        assert host.inside(shares, "") == len(host.threads(shares))
        assert host.told(shares).state is PromiseState.PENDING and host.told(shares).reason.code is Code.REFUSED
        host.clock += 60.0
    host.settle()
    assert host.told(shares).state is host.told(own).state is KEPT
    assert not int(host.mask(CLASS), 16) & int(host.mask(vm_group(own)), 16)


@pytest.mark.parametrize("agent", ["the same", "restarted"])
@pytest.mark.parametrize("refused", ["schemata", "the group"])
@pytest.mark.parametrize(
    ("has", "wants"),
    [(OWN, SHARED), (OWN, LIMIT), (SHARED, OWN), (SHARED, SHARED_4), (SHARED_4, SHARED), (LIMIT, OWN), (LIMIT, SHARED)],
)
def test_a_vm_is_in_ways_of_its_own_or_its_classs_until_it_is_in_others(
    host: Host, has: dict[str, str], wants: dict[str, str], refused: str, agent: str
) -> None:
    vm, other = host.boot(has, threads=2), host.boot(wants)
    host.settle()
    old, new = host.told(vm), host.told(other).group.replace(other, vm)
    host.libvirt.shut_off(other)
    host.settle()
    assert old.state is KEPT and old.group and host.groups() == {old.group}
    host.libvirt.resize(vm, wants)
    if agent == "restarted":
        host.restart()
    with group_refused(host, new) if refused == "the group" else writes_refused(host, f"{new}/schemata"):
        # The steps before the one that fails may have taken the ways.
        assert host.run() and host.told(vm).group == old.group
        assert host.inside(vm, old.group) == len(host.threads(vm))
        for _ in range(3):
            host.settle()
            now = host.told(vm)
            assert (now.state, now.group, now.masks, now.throttles) == (DEGRADED, old.group, old.masks, old.throttles)
            assert now.reason.code is Code.REFUSED and host.inside(vm, old.group) == len(host.threads(vm))
            host.clock += 60.0
    host.clock += 60.0
    host.settle()
    assert (host.told(vm).state, host.told(vm).group, host.groups()) == (KEPT, new, {new})
    assert host.inside(vm, new) == len(host.threads(vm))


@pytest.mark.parametrize("refused", ["its own", "another VM's"])
@pytest.mark.parametrize("limits", ["MB:0=100", "MB:0=100;1=100"])
def test_a_vm_with_a_limit_alone_stays_in_its_class_while_a_step_fails(host: Host, limits: str, refused: str) -> None:
    vm = host.boot(LIMIT, threads=2)
    host.settle()
    group = host.told(vm).group
    # So is it where the VM is pinned to another cache, too, or where a cache comes online.
    host.resctrl.write(f"{group}/schemata", limits)
    other = host.boot(OWN)
    path = f"{group if refused == 'its own' else vm_group(other)}/schemata"
    with writes_refused(host, path):
        host.run()
        assert host.told(vm).state is not KEPT and host.told(vm).reason.code is Code.REFUSED
        assert host.told(vm).throttles == ({1: 50} if limits == "MB:0=100" else {})
        assert host.inside(vm, group) == len(host.threads(vm))
        host.settle()
        assert host.inside(vm, group) == len(host.threads(vm)) and host.told(vm).group == group
    host.clock += 60.0
    host.settle()
    assert host.told(vm).state is host.told(other).state is KEPT and host.told(vm).throttles == {0: 50, 1: 50}


def test_a_vm_that_was_started_anew_is_not_put_into_the_class_of_its_run_before(host: Host) -> None:
    vm, member = host.boot(SHARED, threads=1), host.boot(SHARED)
    host.settle()
    other = host.boot({}, threads=1)
    # It has ended, and runs again with another flavor, before a pass hears of that.
    host.libvirt.vms[vm] = replace(host.libvirt.vms[vm], process=host.libvirt.vms.pop(other).process)
    host.libvirt.resize(vm, OWN)
    with group_refused(host, vm_group(vm)):
        host.settle()
        assert host.told(vm).state is PENDING and not host.told(vm).group
        assert host.inside(vm, CLASS) == 0 and host.inside(member, CLASS) == 1


@pytest.mark.parametrize(("has", "wants"), [(OWN, SHARED), (SHARED, OWN), (SHARED, SHARED_4)])
def test_a_vm_stays_in_its_group_while_a_step_before_its_new_one_fails(
    host: Host, has: dict[str, str], wants: dict[str, str]
) -> None:
    vm, first = host.boot(has), host.boot({"hw:cache_ways": "3"})
    host.settle()
    old = host.told(vm)
    host.libvirt.resize(vm, wants)
    host.libvirt.resize(first, {"hw:cache_ways": "4"})
    with writes_refused(host, f"{vm_group(first)}/schemata"):
        host.run()
        assert host.told(vm).group == old.group and host.inside(vm, old.group) == len(host.threads(vm))
        # The others' steps wait for no VM that is concerned by the failure.
        host.settle()
        assert host.told(vm).state is KEPT and host.told(vm).group != old.group
    host.clock += 60.0
    host.settle()
    assert host.told(vm).state is host.told(first).state is KEPT


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_a_vm_is_in_no_group_that_was_only_just_made_in_the_place_of_one_that_is_gone(
    host: Host, specs: dict[str, str]
) -> None:
    vm = host.boot(specs)
    host.settle()
    group = host.told(vm).group
    host.resctrl.rmdir(group)
    with writes_refused(host, f"{group}/schemata"):
        host.run()
        assert host.told(vm).state is PENDING and not host.told(vm).group and not host.told(vm).masks
        assert host.inside(vm, "") == len(host.threads(vm))
    host.clock += 60.0
    host.settle()
    assert host.told(vm).state is KEPT and host.inside(vm, group) == len(host.threads(vm))


def test_a_vm_is_not_in_its_own_group_while_another_programs_mask_of_it_can_not_be_corrected(host: Host) -> None:
    vm = host.boot(OWN)
    host.settle()
    group = host.told(vm).group
    host.resctrl.write(f"{group}/schemata", "L3:0=600;1=600")
    with writes_refused(host, f"{group}/schemata"):
        host.settle()
        # These ways are the default group's, too.
        assert host.told(vm).state is PENDING and not host.told(vm).masks
        assert host.inside(vm, group) == 0
    host.clock += 60.0
    host.settle()
    assert host.told(vm).state is KEPT and host.inside(vm, group) == len(host.threads(vm))


def test_ways_that_were_taken_for_a_group_that_can_not_be_made_are_given_back_once_its_vm_waits(host: Host) -> None:
    before, vm = host.mask(""), host.boot(OWN)
    with group_refused(host, vm_group(vm)):
        host.run()
        assert host.mask("") != before, "the kernel refuses the step after that one"
        for _ in range(3):
            host.settle()
            assert host.told(vm).state is PENDING and host.told(vm).reason.code is Code.REFUSED
            assert host.mask("") == before
            host.clock += 60.0
            host.run()
    host.clock += 60.0
    host.settle()
    assert host.told(vm).state is KEPT and host.mask(vm_group(vm)) == "3"


@pytest.mark.parametrize("ends", ["before the next pass", "after it"])
def test_ways_that_were_taken_for_a_group_that_can_not_be_made_are_given_back_once_its_vm_ends(
    host: Host, ends: str
) -> None:
    before, vm = host.mask(""), host.boot(OWN)
    with group_refused(host, vm_group(vm)):
        host.run()
        if ends == "after it":
            host.run()
        host.libvirt.shut_off(vm)
        host.settle()
    assert host.mask("") == before
    # Where no VM has a promise, the default group is the operator's.
    host.resctrl.write("schemata", "L3:0=1f")
    for everything in (False, True):
        host.run(everything=everything)
    assert host.mask("") == "1f"


def test_ways_that_were_taken_for_the_group_of_a_start_that_failed_are_given_back(
    host: Host, starts: list[Start]
) -> None:
    before, start = host.mask(""), MakeStart(host, starts)(OWN)
    host.settle()
    with group_refused(host, start.group):
        start.announce()
        assert host.mask("") != before
    # It fails for another reason, too, so that no pass finds the VM.
    host.settle()
    assert host.mask("") == before and not host.groups()


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_ways_of_a_vm_whose_group_another_program_removed_are_given_back_once_it_ends(
    host: Host, is_refused: bool
) -> None:
    before, vm = host.mask(""), host.boot(OWN)
    host.settle()
    host.restart()
    host.settle()
    host.resctrl.rmdir(vm_group(vm))
    if is_refused:
        with group_refused(host, vm_group(vm)):
            host.settle()
    host.libvirt.shut_off(vm)
    host.settle()
    assert host.mask("") == before and not host.groups()


def test_a_vm_that_never_got_anything_has_the_default_group_left_as_the_operator_made_it(host: Host) -> None:
    host.resctrl.write("schemata", "L3:0=1f")
    vm = host.boot({"hw:cache_ways": "11"})
    host.settle()
    assert host.told(vm).state is PENDING and host.mask("") == "1f"
    host.libvirt.shut_off(vm)
    host.settle()
    host.run(everything=True)
    assert host.mask("") == "1f"


def test_a_class_whose_ways_the_kernel_refuses_again_asks_for_no_pass_after_the_other(host: Host) -> None:
    shares, ends = host.boot(SHARED), host.boot(OWN)
    host.settle()
    before, own = host.mask(""), host.boot({"hw:cache_ways": "7"})
    with writes_refused(host, f"{CLASS}/schemata"):
        # As it is planned, without what fails for the class, and without what the class would have to move for.
        assert [host.run() for _ in range(4)] == [True, True, False, False]
        assert host.told(shares).reason.code is Code.REFUSED and host.told(own).state is PENDING
        assert host.told(own).reason.code is Code.REFUSED
        # Nobody else is the worse for it: the default group has its ways, and a VM that ends leaves nothing.
        assert host.mask("") == before and host.inside(shares, CLASS) == len(host.threads(shares))
        host.libvirt.shut_off(ends)
        host.settle()
        assert host.groups() == {CLASS}
        newcomer = host.boot(OWN)
        # What wants most is tried again at the same time.
        host.clock += 60.0
        host.settle()
        assert host.told(newcomer).state is KEPT and host.told(own).state is PENDING
    host.libvirt.shut_off(newcomer)
    host.clock += 60.0
    host.settle()
    assert host.told(shares).state is host.told(own).state is KEPT


def test_a_group_that_has_the_kernels_first_mask_is_no_grant_where_the_vms_tasks_are_not_known(host: Host) -> None:
    before = host.mask("")
    vm = host.boot(OWN)
    with writes_refused(host, f"vmqos.{vm}/schemata", f"mon_groups/vmqos.{vm}/tasks"):
        host.settle()
        assert host.told(vm).state is PromiseState.PENDING and not host.told(vm).masks
        assert host.mask("") == before and not host.groups()
    host.clock += 1.0
    host.settle()
    assert host.told(vm).state is KEPT and host.told(vm).masks[0].count == 2


@pytest.mark.parametrize("has", ["2", "6"])
def test_a_vm_whose_time_to_be_tried_again_comes_during_a_pass_is_tried_by_the_next(
    host: Host, monkeypatch: pytest.MonkeyPatch, has: str
) -> None:
    vm = host.boot({"hw:cache_ways": has})
    host.settle()
    host.libvirt.resize(vm, {"hw:cache_ways": "4"})
    with writes_refused(host, f"vmqos.{vm}/schemata"):
        host.settle()
    assert host.told(vm).state is DEGRADED and host.told(vm).masks[0].count == int(has)
    plan = allocation.plan

    def plan_slowly(*given: Any) -> allocation.Plan:
        found = plan(*given)
        host.clock += 2.0
        return found

    monkeypatch.setattr(allocation, "plan", plan_slowly)
    other = host.boot(OWN)
    host.run()
    assert host.told(other).masks and host.told(vm).state is DEGRADED, "the planner was asked for what it has"
    host.settle()
    assert host.told(vm).state is KEPT and host.told(vm).masks[0].count == 4


def test_a_vm_whose_tasks_can_not_be_moved_to_its_monitoring_group_is_told_to_be_uncounted(host: Host) -> None:
    vm = host.boot(OWN)
    host.settle()
    assert not host.unmonitored(vm), "its own control group counts it"
    host.libvirt.resize(vm, SHARED)
    reads = refuse_tasks(host, f"{CLASS}/mon_groups/vmqos.{vm}")
    host.run()
    assert reads and host.told(vm).state is DEGRADED and host.unmonitored(vm) == YET_TO_BE_MOVED
    assert_counted_once_the_kernel_refuses_nothing(host, vm)


def test_a_vm_whose_other_tasks_are_yet_to_be_moved_to_their_monitoring_group_is_told_to_be_uncounted(
    host: Host,
) -> None:
    vm = host.boot(OWN, threads=3, vcpus=2)
    host.settle()
    assert host.told(vm).state is KEPT
    reads = refuse_tasks(host, f"mon_groups/vmqos.{vm}")
    host.libvirt.resize(vm, {**OWN, "hw:cache_vcpus": "0"})
    host.run()
    assert reads and host.unmonitored(vm) == YET_TO_BE_MOVED
    assert_counted_once_the_kernel_refuses_nothing(host, vm)


@pytest.mark.parametrize(
    ("module", "function", "specs"),
    [
        (cache_vcpus, "look", {**OWN, "hw:cache_vcpus": "0"}),
        (vm_tasks, "vcpu_affinities", {"hw:cache_ways": "3", "hw:l2_cache_ways": "2"}),
    ],
)
def test_a_vm_whose_vcpus_can_not_be_looked_at_keeps_what_it_has_until_they_can(
    host: Host, monkeypatch: pytest.MonkeyPatch, module: object, function: str, specs: dict[str, str]
) -> None:
    vm = host.boot(OWN, threads=3, vcpus=2)
    host.settle()
    mask = host.mask(f"vmqos.{vm}")

    def fail(*_: object) -> None:
        raise OSError("it is not to be seen")

    with monkeypatch.context() as patched:
        patched.setattr(module, function, fail)
        host.libvirt.resize(vm, specs)
        host.settle()
        host.run()
        assert host.mask(f"vmqos.{vm}") == mask and host.inside(vm, f"vmqos.{vm}") == len(host.threads(vm))
        assert host.told(vm).reason.code is Code.NOT_READABLE
    host.clock += 60.0
    host.run()
    assert host.told(vm).reason.code is not Code.NOT_READABLE, "the first pass after it was seen again serves it"


def test_a_monitoring_group_that_is_gone_is_not_told_to_count_a_vm_whose_tasks_can_not_be_moved(host: Host) -> None:
    vm = host.boot({})
    host.settle()
    assert host.graphs() == {vm}
    refuse_tasks(host, f"vmqos.{vm}")
    host.libvirt.resize(vm, OWN)
    host.run()
    tasks_of_vm = host.reconciler.snapshot.vms[vm].tasks
    assert not host.graphs() and tasks_of_vm is not None
    assert tasks_of_vm.target.monitoring is None and host.unmonitored(vm) == YET_TO_BE_MOVED
    assert_counted_once_the_kernel_refuses_nothing(host, vm)


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_an_agent_that_is_restarted_does_not_say_how_long_vms_were_outside_before(
    host: Host, specs: dict[str, str]
) -> None:
    vm = host.boot(specs, threads=2)
    host.settle()
    before = host.reconciler.snapshot.vms[vm].outside
    assert before is not None and before.at_start
    host.restart()
    host.settle()
    found = host.reconciler.snapshot.vms[vm].outside
    assert found is not None and (found.at_start, found.later, found.is_settled) == (None, 0, True)
