# SPDX-License-Identifier: Apache-2.0
"""What a pass does to the promises of VMs: the simulator's machine in this process, processes as VMs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.agent.host import CLASS, NOT_GUARDED, OWN, SHARED, Host, MakeHost
from tests.unit.agent.starting import MakeStart, Start
from tests.unit.eventually import eventually
from vmqos import allocation
from vmqos.agent.act import monitoring_groups
from vmqos.agent.act.task_placer import YET_TO_BE_MOVED
from vmqos.agent.observe import cache_vcpus
from vmqos.agent.serve import vms
from vmqos.allocation import PromiseState
from vmqos.group_names import vm_group
from vmqos.hypervisor import vm_tasks
from vmqos.reason import Code, Reason
from vmqos.resctrl import exceptions, tasks
from vmqos.simulator.hardware import rmids

SHARED_4, LIMIT = {**SHARED, "hw:cache_ways": "4"}, {"hw:mem_bandwidth_percent": "50"}
KEPT, DEGRADED, PENDING = PromiseState.KEPT, PromiseState.DEGRADED, PromiseState.PENDING


# What is told is what is.


@pytest.mark.parametrize(("specs", "mask"), [(OWN, "1"), (OWN, "7ff"), (SHARED, "1"), (SHARED, "3f")])
def test_a_mask_that_another_program_writes_during_a_pass_is_told_and_mended_by_the_next(
    host: Host, specs: dict[str, str], mask: str
) -> None:
    vm = host.boot(specs)
    host.settle()
    group, granted = host.told(vm).group, host.mask(host.told(vm).group)
    assert host.told(vm).state is KEPT

    def meddle(path: str) -> None:
        # Between the plan and the last look.
        if path.endswith("tasks"):
            host.resctrl.before = lambda path: None
            host.resctrl.write(f"{group}/schemata", f"L3:0={mask}")

    host.resctrl.before = meddle
    host.libvirt.resize(vm, {**specs, "hw:other": "1"})
    assert host.run(), "another pass is asked for at once"
    assert host.mask(group) == mask and host.told(vm).state is DEGRADED
    assert str(host.told(vm).masks[0]) == mask and host.told(vm).reason.code is Code.CHANGED_OUTSIDE
    host.settle()
    assert host.mask(group) == granted and host.told(vm).state is KEPT


def test_a_limit_of_bandwidth_that_another_program_writes_during_a_pass_is_told_and_mended(host: Host) -> None:
    vm = host.boot({"hw:mem_bandwidth_percent": "50"})
    host.settle()
    group = host.told(vm).group
    assert host.told(vm).state is KEPT and group

    def meddle(path: str) -> None:
        if path.endswith("tasks"):
            host.resctrl.before = lambda path: None
            host.resctrl.write(f"{group}/schemata", "MB:0=100")

    host.resctrl.before = meddle
    host.libvirt.resize(vm, {"hw:mem_bandwidth_percent": "50", "hw:other": "1"})
    assert host.run()
    assert host.told(vm).state is DEGRADED and "instead of 50" in host.told(vm).reason.text
    host.settle()
    assert host.told(vm).state is KEPT and host.told(vm).throttles[0] == 50


def test_passes_end_where_a_foreign_group_has_ways_of_a_vm_that_lacks_something_else_too(make_host: MakeHost) -> None:
    host = make_host("minimal")
    vm = host.boot({**OWN, "hw:mem_bandwidth_percent": "30"})
    host.settle()
    assert host.told(vm).state is DEGRADED and host.told(vm).reason.code is Code.NO_BANDWIDTH
    # The kernel gives it all ways.
    host.resctrl.mkdir("other")
    host.settle()
    told = host.told(vm)
    assert told.state is DEGRADED and told.reason.code is Code.NO_BANDWIDTH
    assert "no room to move it to" in told.reason.text and "the next pass" not in told.reason.text


def test_the_limit_of_a_vm_is_told_with_its_ways_while_resctrl_can_not_be_read(host: Host) -> None:
    vm = host.boot({**OWN, "hw:mem_bandwidth_percent": "50"})
    host.settle()
    for _ in range(2):
        host.reconciler.forget()
        told = vms.vm(host.reconciler.snapshot, host.reconciler.snapshot.vms[vm])
        assert (told["state"], set(told["masks"].values())) == ("kept", {"3"})
        assert (set(told["bandwidth"].values()), told["bandwidth_unit"]) == ({50}, "%")


@pytest.mark.parametrize("specs", [OWN, SHARED], ids=["ways of its own", "in a class"])
def test_a_limit_that_another_program_gives_a_vm_that_was_promised_none_is_told_and_mended(
    host: Host, specs: dict[str, str]
) -> None:
    vm = host.boot(specs)
    host.settle()
    group = host.told(vm).group

    def meddle(path: str) -> None:
        if path.endswith("tasks"):
            host.resctrl.before = lambda path: None
            host.resctrl.write(f"{group}/schemata", "MB:0=10")

    host.resctrl.before = meddle
    host.libvirt.resize(vm, {**specs, "hw:other": "1"})
    assert host.run(), "another pass is asked for at once"
    told = host.told(vm)
    assert told.state is DEGRADED and told.reason.code is Code.CHANGED_OUTSIDE and told.throttles == {0: 10}
    assert "MB 0 is 10 instead of no limit" in told.reason.text
    host.settle()
    assert (host.told(vm).state, host.told(vm).throttles) == (KEPT, {})


def test_a_vm_whose_limit_the_kernel_does_not_lift_is_told_to_have_it(host: Host) -> None:
    vm = host.boot({**OWN, "hw:mem_bandwidth_percent": "50"})
    host.settle()
    host.libvirt.resize(vm, OWN)
    with writes_refused(host, f"{vm_group(vm)}/schemata"):
        host.settle()
    told = host.told(vm)
    assert told.state is DEGRADED and told.reason.code is Code.REFUSED and set(told.throttles.values()) == {50}
    host.clock += 1.0
    host.settle()
    assert (host.told(vm).state, host.told(vm).throttles) == (KEPT, {})


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


def refuse_tasks(host: Host, directory: str) -> list[str]:
    """Have the kernel refuse to read and write the tasks of a group; what is tried is noted in the list."""
    tried = list[str]()

    def refuse(path: str) -> None:
        if path == f"{directory}/tasks":
            tried.append(path)
            raise OSError(16, "Device or resource busy")

    host.resctrl.before = refuse
    return tried


def assert_counted_once_the_kernel_refuses_nothing(host: Host, vm: str) -> None:
    host.resctrl.before = lambda path: None
    host.clock += 1.0
    host.settle()
    assert host.told(vm).state is KEPT and not host.unmonitored(vm)


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


@contextlib.contextmanager
def group_refused(host: Host, name: str) -> Iterator[None]:
    """The kernel makes no group of this name."""

    def refuse(path: str) -> None:
        if path == name:
            raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.resctrl, "before", refuse)
        yield


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
    shares = host.boot(SHARED)
    host.settle()
    own = host.boot({"hw:cache_ways": "8"})
    with writes_refused(host, f"{CLASS}/schemata"):
        assert [host.run() for _ in range(3)] == [True, False, False]
        assert host.told(shares).reason.code is Code.REFUSED and host.told(own).state is PromiseState.PENDING
    host.clock += 60.0
    host.settle()
    assert host.told(shares).state is host.told(own).state is KEPT


@contextlib.contextmanager
def writes_refused(host: Host, *paths: str) -> Iterator[None]:
    """The kernel refuses every write to these files."""
    real = host.resctrl.write

    def write(relative: str, text: str) -> None:
        def refuse(path: str) -> None:
            raise OSError(28, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            if relative in paths:
                patch.setattr(host.resctrl, "before", refuse)
            real(relative, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.resctrl, "write", write)
        yield


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


# Resctrl is mounted anew.


def is_guarded(host: Host, vm: str) -> bool:
    """Whether the kernel guards the VM's ways."""
    return host.resctrl.read(f"vmqos.{vm}", "mode").strip() == "exclusive"


@pytest.mark.parametrize("during", ["a whole pass", "a look at its tasks alone", "none"])
def test_what_the_kernel_refused_is_tried_again_once_resctrl_is_mounted_anew(host: Host, during: str) -> None:
    host.policy = replace(NOT_GUARDED, kernel_exclusive=True)
    vm = host.boot(OWN)
    with writes_refused(host, f"vmqos.{vm}/mode"):
        host.settle()
    assert host.told(vm).state is KEPT and not is_guarded(host, vm)

    def mount_anew(path: str) -> None:
        if path.endswith("tasks"):
            host.resctrl.before = lambda path: None
            host.resctrl.mount_anew()

    if during == "none":
        host.resctrl.mount_anew()
    else:
        host.resctrl.before = mount_anew
        if during == "a whole pass":
            host.boot(SHARED)
        else:
            host.look_again(vm)
        assert host.run(), "another pass is asked for at once"
        assert f"vmqos.{vm}" not in host.groups()
    host.settle()
    assert host.told(vm).state is KEPT and is_guarded(host, vm)


def test_a_vm_for_which_something_failed_does_not_wait_longer_once_resctrl_is_mounted_anew(host: Host) -> None:
    vm = host.boot(OWN)
    with writes_refused(host, f"vmqos.{vm}/schemata"):
        for _ in range(5):
            host.run()
            host.clock += 60.0
        host.run()
    assert host.told(vm).state is PromiseState.PENDING
    host.resctrl.mount_anew()
    host.settle()
    assert host.told(vm).state is KEPT


# A failure of what is not done any more calls for no pass.


@pytest.mark.parametrize("left", ["the vCPUs are named no more", "libvirt has placed it"])
def test_a_failure_of_what_is_not_done_for_a_vm_any_more_is_forgotten(
    host: Host, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    vm = host.boot({**OWN, "hw:cache_vcpus": "0"}, threads=3, vcpus=2)
    reads = refuse_tasks(host, f"vmqos.{vm}")

    def fail(*_: object) -> None:
        raise OSError("it is not to be seen")

    with monkeypatch.context() as patched:
        if left == "the vCPUs are named no more":
            patched.setattr(cache_vcpus, "look", fail)
        host.settle()
    assert reads or left == "the vCPUs are named no more"
    assert host.backoff.next_due() is not None
    host.resctrl.before = lambda path: None
    if left == "the vCPUs are named no more":
        host.libvirt.resize(vm, OWN)
    else:
        host.libvirt.vms[vm] = replace(host.libvirt.vms[vm], has_cachetune=True)
    host.clock += 60.0
    host.settle()
    assert host.backoff.next_due() is None, "each pass would be a whole one, for ever"


# A VM that can't be looked at keeps what it has.


@pytest.mark.parametrize("trouble", ["unseen", "unknown flavor"])
def test_a_class_outlives_a_restart_where_no_monitoring_group_tells_of_its_vm(
    make_host: MakeHost, trouble: str
) -> None:
    host = make_host("minimal")
    for _ in range(4):
        host.boot({})
    vm = host.boot(SHARED)
    host.settle()
    assert host.told(vm).state is KEPT and host.unmonitored(vm)
    host.restart()
    if trouble == "unseen":
        host.unseen.add(vm)
    else:
        host.forget_flavor(vm)
    for _ in range(3):
        host.run()
    assert host.inside(vm, CLASS) == 1 and host.mask(CLASS) == "3"
    if trouble == "unseen":
        host.unseen.clear()
        host.run()
        assert host.told(vm).state is KEPT
    host.libvirt.shut_off(vm)
    host.unseen.clear()
    host.settle()
    assert CLASS not in host.groups(), "nobody needs it any more"


@pytest.mark.parametrize("trouble", ["unseen", "unknown flavor", "failed"])
@pytest.mark.parametrize("outside", ["mounted anew", "group removed"])
@pytest.mark.parametrize("specs", [OWN, {**SHARED, "hw:cache_ways": "4"}], ids=["own", "shared"])
def test_what_a_vm_had_is_given_to_no_newcomer_though_its_group_is_gone(
    host: Host, specs: dict[str, str], outside: str, trouble: str
) -> None:
    vm = host.boot(specs)
    host.settle()
    host.restart()
    if trouble == "unseen":
        host.unseen.add(vm)
    elif trouble == "unknown flavor":
        host.forget_flavor(vm)
    host.settle()
    (group,) = host.groups()
    if trouble == "failed":
        host.backoff.fail(vm, Reason(Code.OTHER, "the kernel refused"))
    if outside == "mounted anew":
        host.resctrl.mount_anew()
    else:
        host.resctrl.rmdir(group)
    host.settle()
    # Of 11 ways, the default group keeps two, and all four that the class may fill.
    newcomers = [host.boot({"hw:cache_ways": "7"}), host.boot({"hw:cache_ways": "1"})]
    host.settle()
    assert [host.told(newcomer).state for newcomer in newcomers] == [KEPT, PENDING]
    host.unseen.clear()
    host.libvirt.resize(vm, specs)
    host.clock += 60.0
    host.settle()
    assert host.told(vm).state is KEPT and host.inside(vm, group) == 1


@pytest.mark.parametrize(
    ("profile", "specs"),
    [("cascade-lake", {"hw:mem_bandwidth_percent": "100"}), ("milan", {"hw:mem_bandwidth_mbps": "300000"})],
)
def test_a_limit_that_limits_nothing_here_is_kept_by_the_pass_that_makes_the_group(
    make_host: MakeHost, profile: str, specs: dict[str, str]
) -> None:
    host = make_host(profile)
    host.settle()
    vm = host.boot(specs)
    host.run()
    assert host.told(vm).state is KEPT
    assert host.inside(vm, host.told(vm).group) == 1


def limit_of(host: Host, vm: str) -> str:
    """The line of a VM's own group that limits its bandwidth."""
    return next(line for line in host.resctrl.read(vm_group(vm), "schemata").splitlines() if "MB:" in line)


def test_a_limit_that_is_lost_while_its_vm_is_unseen_is_given_back_and_the_group_stays(make_host: MakeHost) -> None:
    host = make_host("milan")
    vm = host.boot({"hw:mem_bandwidth_mbps": "1000"})
    host.settle()
    before = limit_of(host, vm)
    host.unseen.add(vm)
    host.settle()
    # So the kernel does when a cache came online.
    host.resctrl.write(f"{vm_group(vm)}/schemata", before.replace("=   8", "=2048"))
    assert limit_of(host, vm) != before
    host.settle()
    assert host.inside(vm, vm_group(vm)) == 1
    assert limit_of(host, vm) == before


def test_what_an_unseen_vm_had_before_a_restart_is_not_taken_for_nothing(host: Host) -> None:
    earlier = host.boot({"hw:cache_ways": "30"})
    vm = host.boot({"hw:cache_ways": "3"})
    host.settle()
    assert host.told(vm).state is KEPT and host.told(earlier).state is PENDING
    host.restart()
    host.unseen.add(vm)
    # Another program has given the default group the ways of the VM.
    caches = next(line for line in host.resctrl.read("", "schemata").splitlines() if "L3:" in line).count("=")
    host.resctrl.write("schemata", "L3:" + ";".join(f"{cache}=7ff" for cache in range(caches)))
    host.settle()
    host.unseen.clear()
    # The ways suffice for one of the two.
    host.libvirt.resize(earlier, {"hw:cache_ways": "7"})
    host.settle()
    assert host.told(vm).state is KEPT, "what was in force is given back first"
    assert host.told(earlier).state is PENDING


def test_the_group_of_an_unseen_vm_outlives_a_restart_though_its_ways_are_the_default_groups_too(host: Host) -> None:
    vm = host.boot(OWN)
    host.settle()
    host.restart()
    host.unseen.add(vm)
    default = host.resctrl.read("", "schemata")
    caches = next(line for line in default.splitlines() if "L3:" in line).count("=")
    host.resctrl.write("schemata", "L3:" + ";".join(f"{cache}=7ff" for cache in range(caches)))
    host.settle()
    assert host.inside(vm, vm_group(vm)) == 1
    host.unseen.clear()
    host.settle()
    assert host.told(vm).state is KEPT


def assert_alone(host: Host, vm: str) -> None:
    """A promise of two ways is in force, and no other group has any of them."""
    mine = int(host.mask(vm_group(vm)), 16)
    assert host.told(vm).state is KEPT and mine.bit_count() == 2
    assert host.inside(vm, vm_group(vm)) == len(host.threads(vm))
    assert not any(mine & int(host.mask(name), 16) for name in {"", *host.groups()} - {vm_group(vm)})


@pytest.mark.parametrize("trouble", ["unseen", "unknown flavor"])
@pytest.mark.parametrize(("group", "mask"), [("", "7ff"), ("own", "600"), ("own", "180")])
def test_ways_that_another_program_had_others_share_before_the_agent_ran_are_given_to_no_newcomer(
    host: Host, group: str, mask: str, trouble: str
) -> None:
    vm = host.boot(OWN)
    host.settle()
    host.restart()
    if trouble == "unseen":
        host.unseen.add(vm)
    else:
        host.forget_flavor(vm)
    host.resctrl.write(f"{vm_group(vm)}/schemata" if group else "schemata", f"L3:0={mask};1={mask}")
    large, small = host.boot({"hw:cache_ways": "9"}), host.boot(OWN)
    host.settle()
    assert host.told(large).state is PENDING, "two ways are another VM's, and two are the default group's"
    assert_alone(host, small)
    mine = int(host.mask(vm_group(vm)), 16)
    others = {"", *host.groups()} - {vm_group(vm)}
    assert mine.bit_count() == 2 and not any(mine & int(host.mask(name), 16) for name in others)
    host.unseen.clear()
    host.libvirt.resize(vm, OWN)
    host.settle()
    assert_alone(host, vm)


def test_a_vm_that_had_nothing_keeps_nothing_once_it_is_unseen(host: Host) -> None:
    first, second = host.boot({"hw:cache_ways": "9"}), host.boot(OWN)
    host.settle()
    assert host.told(second).state is PENDING
    host.libvirt.shut_off(first)
    host.unseen.add(second)
    host.settle()
    assert vm_group(second) not in host.groups()


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])
def test_a_vm_for_which_something_failed_stays_in_its_class_though_its_tasks_were_forgotten(
    host: Host, counted: bool
) -> None:
    vm = host.boot(SHARED)
    host.settle()
    if not counted:
        host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{vm}")
    host.backoff.fail(vm, Reason(Code.OTHER, "the kernel refused"))
    # So it is after a pass that could not read resctrl.
    host.reconciler.forget()
    host.run()
    assert host.inside(vm, CLASS) == 1


def test_a_class_without_a_task_of_an_unknown_process_is_retired_though_a_vm_is_unseen(host: Host) -> None:
    member, other = host.boot(SHARED), host.boot({})
    host.settle()
    host.restart()
    host.unseen.add(other)
    host.libvirt.resize(member, {})
    host.settle()
    assert CLASS not in host.groups()


def test_the_vcpus_of_a_vm_whose_flavor_is_not_known_stay_in_their_class(make_host: MakeHost) -> None:
    host = make_host("minimal")
    vm = host.boot(SHARED, threads=2)
    host.settle()
    # A thread's id is lower than its process's where the kernel began to count anew.
    first = host.libvirt.vms[vm].process.pid
    others = host.threads(vm) - {first}
    host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{vm}")
    tasks.move(host.resctrl, "", [first])
    host.restart()
    host.forget_flavor(vm)
    for _ in range(3):
        host.run()
    assert tasks.read_tasks(host.resctrl, CLASS) == others


# A promise goes before a graph.


def run_until(host: Host, reached: Callable[[], bool], *, everything: bool = True) -> None:
    """Passes, until the kernel gives out RMIDs again: it looks once a second whether it can."""
    for _ in range(50):
        host.clock += 1.1
        host.run(everything=everything)
        if reached():
            return
        time.sleep(0.2)
    pytest.fail("the RMIDs did not come back")


def test_graphs_that_one_pass_had_no_time_for_are_made_by_those_after_it(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring_groups, "MAKING", 0.0)
    host = make_host("minimal")
    plain = [host.boot({}) for _ in range(4)]
    host.settle()
    assert host.graphs() == set(plain)


def test_the_latest_plain_vm_gives_up_its_graph_for_a_promise(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, the kernel's second of limbo may be over before the test has looked.
    monkeypatch.setattr(rmids, "CHECK_INTERVAL", 3600.0)
    host = make_host("minimal")
    allocator = host.resctrl.machine.hardware.rmids
    plain = [host.boot({}) for _ in range(4)]
    host.settle()
    assert host.graphs() == set(plain)
    for number in range(3):
        host.resctrl.mkdir(f"mon_groups/telegraf{number}")
    vm = host.boot(OWN)
    host.settle()
    assert host.graphs() == set(plain[:3]) and host.told(vm).state is PromiseState.PENDING
    assert vm in host.unmonitored(plain[3]) and "no RMID is left" in host.unmonitored(plain[3])
    for _ in range(3):
        host.run()
    assert host.graphs() == set(plain[:3]), "one is enough"
    for rmid in allocator.in_limbo:
        allocator.release(rmid)
    monkeypatch.setattr(rmids, "CHECK_INTERVAL", 1.0)
    run_until(host, lambda: host.told(vm).state is KEPT)
    for _ in range(5):
        host.run(everything=True)
        assert host.graphs() == set(plain[:3]) and host.told(vm).state is KEPT
    assert vm in host.unmonitored(plain[3])
    for number in range(3):
        host.resctrl.rmdir(f"mon_groups/telegraf{number}")
    # A pass whose share of the lock is used up moves its tasks later.
    run_until(host, lambda: host.graphs() == set(plain) and not host.unmonitored(plain[3]))


def test_what_another_program_frees_during_a_pass_is_given_out_by_a_later_one(make_host: MakeHost) -> None:
    host = make_host("minimal")
    taken = [f"mon_groups/telegraf{number}" for number in range(7)]
    for name in taken:
        host.resctrl.mkdir(name)
    waits = host.boot({})
    host.settle()
    assert "no RMID is left" in host.unmonitored(waits)

    def free(path: str) -> None:
        # Between the plan and the last look.
        if path.endswith("tasks"):
            host.resctrl.before = lambda path: None
            for name in taken:
                host.resctrl.rmdir(name)

    host.resctrl.before = free
    host.boot({})
    host.run()
    assert not any(name.startswith("telegraf") for name in host.resctrl.directories("mon_groups"))
    run_until(host, lambda: waits in host.graphs(), everything=False)


def test_what_another_program_frees_while_libvirt_does_not_answer_is_given_out_afterwards(make_host: MakeHost) -> None:
    host = make_host("minimal")
    taken = [f"mon_groups/telegraf{number}" for number in range(7)]
    for name in taken:
        host.resctrl.mkdir(name)
    waits = host.boot({})
    host.settle()
    for name in taken:
        host.resctrl.rmdir(name)
    # What the loop does then instead of a pass.
    host.reconciler.read(host.topology, host.policy)
    run_until(host, lambda: waits in host.graphs(), everything=False)


def test_a_promise_that_waits_for_an_rmid_is_tried_every_second_and_keeps_no_other_waiting(
    make_host: MakeHost,
) -> None:
    host = make_host("minimal")
    taken = [f"mon_groups/telegraf{number}" for number in range(7)]
    for name in taken:
        host.resctrl.mkdir(name)
    vm = host.boot(OWN)
    for name in taken:
        # All that are free are in limbo.
        host.resctrl.rmdir(name)
    for _ in range(8):
        host.run()
        failure = host.backoff.get(vm)
        assert failure is not None and failure.delay <= 1.0
        host.clock += 1.0
    run_until(host, lambda: host.told(vm).state is KEPT)


def test_a_vm_does_not_wait_for_its_ways_until_strays_were_looked_for(host: Host) -> None:
    touched: list[str] = []
    host.boot({})
    host.settle()
    vm = host.boot(OWN)
    host.resctrl.before = touched.append
    host.run()
    assert touched.index(f"vmqos.{vm}/schemata", touched.index(f"vmqos.{vm}")) < touched.index("tasks")
    # A pass that has nothing else to do looks, too.
    host.settle()
    touched.clear()
    host.run()
    assert "tasks" in touched and not any(path.endswith("/tasks") for path in touched)
    host.resctrl.write("tasks", str(host.libvirt.vms[vm].process.pid))
    host.settle()
    assert host.inside(vm, f"vmqos.{vm}") == 1


def test_the_group_of_a_vm_that_ended_is_gone_before_strays_are_looked_for(host: Host) -> None:
    touched: list[str] = []
    ends, stays = host.boot(OWN), host.boot(OWN)
    host.settle()
    host.libvirt.shut_off(ends)
    host.resctrl.before = touched.append
    host.run(everything=True)
    assert touched.index(f"vmqos.{ends}") < touched.index("tasks") < touched.index(f"vmqos.{stays}/tasks")
    assert host.groups() == {f"vmqos.{stays}"} and host.told(stays).state is KEPT


def test_a_class_is_removed_after_the_tasks_of_its_vm_are_in_the_vms_own_group(host: Host) -> None:
    touched: list[str] = []
    vm = host.boot(SHARED)
    host.settle()
    shared = host.told(vm).group
    host.libvirt.resize(vm, OWN)
    host.resctrl.before = touched.append
    host.run()
    assert touched.index(f"vmqos.{vm}/tasks") < touched.index(shared)
    assert host.groups() == {f"vmqos.{vm}"} and host.inside(vm, f"vmqos.{vm}") == len(host.threads(vm))


# What the threads of vCPUs get, and which events are planned.


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_while_a_vms_memory_comes_only_the_threads_of_its_vcpus_are_in_its_group(
    host: Host, specs: dict[str, str]
) -> None:
    vm = host.boot(specs, threads=3, vcpus=2)
    vcpus = frozenset(host.vcpus(vm).values())
    host.libvirt.vms[vm] = replace(host.libvirt.vms[vm], waiting_vcpus=vcpus)
    host.settle()
    own = f"vmqos.{vm}" if specs is OWN else f"{CLASS}/mon_groups/vmqos.{vm}"
    assert tasks.read_tasks(host.resctrl, own) == vcpus
    assert tasks.read_tasks(host.resctrl, f"mon_groups/vmqos.{vm}") == host.threads(vm) - vcpus
    assert host.told(vm).state is PromiseState.KEPT
    host.libvirt.vms[vm] = replace(host.libvirt.vms[vm], waiting_vcpus=None)
    host.run(everything=True)
    host.settle()
    assert tasks.read_tasks(host.resctrl, own) == host.threads(vm)
    with pytest.raises(exceptions.Vanished):
        tasks.read_tasks(host.resctrl, f"mon_groups/vmqos.{vm}")


def test_a_vcpu_that_is_born_later_gets_its_ways_although_the_lock_was_taken_by_another(host: Host) -> None:
    vm = host.boot({**OWN, "hw:cache_vcpus": "1"}, threads=1, vcpus=1)
    host.settle()
    before = host.threads(vm)
    host.add_thread(vm, "CPU 1/KVM")
    eventually(lambda: host.threads(vm) - before and 1 in host.vcpus(vm))

    def lose() -> None:
        raise TimeoutError("another process has the lock")

    for host.before_lock in (lose, lose, lambda: None):
        with contextlib.suppress(TimeoutError):
            host.run()
    host.settle()
    assert tasks.read_tasks(host.resctrl, f"vmqos.{vm}") == {host.vcpus(vm)[1]}


@pytest.mark.parametrize("specs", [{**OWN, "hw:cache_vcpus": "0"}, {**OWN, "hw:l2_cache_ways": "2"}])
def test_what_an_audit_finds_of_vcpus_once_it_has_time_is_acted_on(
    host: Host, monkeypatch: pytest.MonkeyPatch, specs: dict[str, str]
) -> None:
    vms = [host.boot(specs, threads=1, vcpus=1) for _ in range(3)]
    host.settle()
    cpu = min(os.sched_getaffinity(0))
    for vm in vms:
        os.sched_setaffinity(host.vcpus(vm)[0], {cpu})
    monkeypatch.setattr(cache_vcpus, "BUDGET", 0.0)
    host.run(everything=True)
    left = 0
    while host.reconciler.is_unfinished:
        host.run()
        left += 1
    assert left == 2
    assert {host.reconciler.snapshot.vms[vm].affinities for vm in vms} == {(frozenset({cpu}),)}


@pytest.mark.parametrize("specs", [OWN, SHARED, {}])
def test_an_event_that_changes_nothing_for_the_planner_plans_and_judges_nothing_else(
    host: Host, monkeypatch: pytest.MonkeyPatch, specs: dict[str, str]
) -> None:
    other, vm = host.boot(OWN), host.boot(specs, threads=3)
    host.settle()
    host.run()
    before = dict(host.reconciler.snapshot.vms)
    group = host.reconciler.snapshot.vms[vm].tasks
    assert group is not None
    stray = sorted(host.threads(vm))[0]
    if specs:
        host.resctrl.write("tasks", str(stray))
    monkeypatch.setattr(allocation, "plan", lambda *_: pytest.fail("it was planned anew"))
    host.look_again(vm)
    host.run()
    after = host.reconciler.snapshot.vms
    assert after[other] is before[other] and after[vm] is not before[vm]
    assert after[vm].allocation == before[vm].allocation and not after[vm].unmonitored
    assert host.inside(vm, group.target.directory) == 4
    monkeypatch.undo()
    host.run(everything=True)
    now, then = host.reconciler.snapshot.vms[vm].tasks, after[vm].tasks
    assert now is not None and then is not None and now == replace(then, outside=now.outside)


@pytest.mark.parametrize("specs", [{"hw:cache_ways": "1"}, {}, SHARED])
def test_an_event_after_which_the_flavor_asks_for_something_else_is_planned(host: Host, specs: dict[str, str]) -> None:
    host.boot(OWN)
    vm = host.boot(OWN)
    host.settle()
    found = host.libvirt.vms[vm]
    assert found.metadata is not None
    host.libvirt.vms[vm] = replace(found, metadata=replace(found.metadata, extra_specs=specs))
    host.look_again(vm)
    host.settle()
    has = host.told(vm)
    assert has.state is (KEPT if specs else PromiseState.NONE)
    assert has.group == {"": "", "1": vm_group(vm)}.get(specs.get("hw:cache_ways", ""), CLASS)
