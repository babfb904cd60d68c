# SPDX-License-Identifier: Apache-2.0
"""What a pass does to the promises of VMs: the simulator's machine in this process, processes as VMs."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace

import pytest

from tests.unit.agent.host import CLASS, NOT_GUARDED, OWN, SHARED, Host, MakeHost
from tests.unit.agent.refusals import refuse_tasks, writes_refused
from tests.unit.eventually import eventually
from vmqos import allocation
from vmqos.agent.observe import cache_vcpus
from vmqos.agent.serve import vms
from vmqos.allocation import PromiseState
from vmqos.group_names import vm_group
from vmqos.reason import Code
from vmqos.resctrl import exceptions, tasks

KEPT, DEGRADED = PromiseState.KEPT, PromiseState.DEGRADED


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
