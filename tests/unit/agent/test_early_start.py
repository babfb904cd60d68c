# SPDX-License-Identifier: Apache-2.0
"""The promise of a VM that libvirt is starting: the simulator's machine in this process, a process as its QEMU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.agent.host import CLASS, OWN, SHARED, Host
from tests.unit.agent.starting import MakeStart, Start
from vmqos import allocation
from vmqos.agent.courtesy import LockShare
from vmqos.agent.early_start import FORK, EarlyStart
from vmqos.agent.steps import Change
from vmqos.allocation import PromiseState
from vmqos.host import resctrl_state
from vmqos.resctrl import tasks


@contextlib.contextmanager
def no_writes(host: Host) -> Iterator[None]:
    """Nothing is changed in resctrl meanwhile."""
    before = {group: host.resctrl.read(group, "tasks") for group in host.groups()}
    yield
    assert {group: host.resctrl.read(group, "tasks") for group in host.groups()} == before


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_every_thread_is_born_in_the_vms_group(make_start: MakeStart, host: Host, specs: Mapping[str, str]) -> None:
    start = make_start(specs)
    directory = start.group if specs is OWN else f"{CLASS}/mon_groups/{start.group}"
    assert start.announce() == set()
    assert tasks.read_tasks(host.resctrl, directory) == set()
    assert start.fork() == {"instance"}
    assert tasks.read_tasks(host.resctrl, directory) == {start.process.pid}
    threads = start.make_threads("CPU 0/KVM", "CPU 1/KVM")
    assert tasks.read_tasks(host.resctrl, directory) == threads
    start.run()
    with no_writes(host):
        host.settle()
    assert host.told(start.uuid).state is PromiseState.KEPT
    assert tasks.read_tasks(host.resctrl, directory) == threads


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_passes_keep_the_group_of_a_vm_that_they_have_not_seen(
    make_start: MakeStart, host: Host, specs: Mapping[str, str]
) -> None:
    start = make_start(specs)
    start.announce()
    groups = host.groups()
    assert len(groups) == 2
    with no_writes(host):
        host.boot({})
        host.settle()
        host.run(everything=True)
    start.fork()
    host.boot({})
    host.settle()
    host.run(everything=True)
    assert host.groups() == groups
    assert host.inside(next(iter(host.libvirt.vms)), "vmqos." + next(iter(host.libvirt.vms))) == 1


def test_the_ways_of_a_starting_vm_are_nobody_elses(make_start: MakeStart, host: Host) -> None:
    start = make_start({"hw:cache_ways": "6"})
    start.announce()
    mask = int(host.mask(start.group), 16)
    late = host.boot({"hw:cache_ways": "6"})
    host.settle()
    assert host.told(late).state is PromiseState.PENDING
    assert int(host.mask(start.group), 16) == mask and mask.bit_count() == 6
    assert not int(host.mask(""), 16) & mask


@pytest.mark.parametrize("specs", [OWN, SHARED])
@pytest.mark.parametrize("forked", [False, True])
def test_a_start_that_fails_takes_its_group_along(
    make_start: MakeStart, host: Host, specs: Mapping[str, str], forked: bool
) -> None:
    start = make_start(specs)
    before = host.groups()
    start.announce()
    assert host.groups() != before
    if forked:
        start.fork()
        start.end()
    start.early.end("instance")
    host.settle()
    assert host.groups() == before


def test_a_vm_whose_end_nobody_tells_is_noticed_by_its_process(make_start: MakeStart, host: Host) -> None:
    start = make_start(OWN)
    before = host.groups()
    start.announce()
    start.fork()
    start.end()
    host.settle()
    assert host.groups() == before


def test_a_vm_that_a_pass_saw_before_its_start_was_heard_of_leaves_nothing_behind(
    make_start: MakeStart, host: Host
) -> None:
    start = make_start(OWN)
    before = host.groups()
    start.announce()
    start.fork_unheard()
    start.run()
    host.settle()
    assert host.told(start.uuid).state is PromiseState.KEPT
    assert start.early.begin([start.told(start.process)]) == {"instance"}
    host.settle()
    start.end()
    del host.libvirt.vms[start.uuid]
    host.settle()
    assert host.groups() == before, "libvirt has not removed the VM's file yet"


def test_a_vm_is_not_born_in_the_few_ways_that_a_start_before_it_has_left(make_start: MakeStart, host: Host) -> None:
    failed = make_start(OWN)
    failed.announce()
    host.boot({"hw:cache_ways": "5"})
    host.settle()
    start = make_start({"hw:cache_ways": "6"}, uuid=failed.uuid)
    start.announce()
    start.fork()
    assert start.process.pid not in tasks.read_tasks(host.resctrl, start.group)
    start.run()
    host.settle()
    told = host.told(start.uuid)
    assert told.state is PromiseState.DEGRADED and "of 6 ways" in told.reason.text


def test_a_vm_that_is_never_forked_is_given_up(
    make_start: MakeStart, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = make_start(OWN)
    before = host.groups()
    start.announce()
    monkeypatch.setattr("vmqos.agent.observe.starts.FORK_PATIENCE", 0.0)
    host.settle()
    assert host.groups() == before


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_a_process_that_does_not_become_the_vms_qemu_is_given_back(
    make_start: MakeStart, host: Host, monkeypatch: pytest.MonkeyPatch, specs: Mapping[str, str]
) -> None:
    start = make_start(specs)
    before = host.groups()
    start.announce()
    start.fork()
    host.settle()
    assert start.process.pid not in tasks.read_tasks(host.resctrl, "")
    monkeypatch.setattr("vmqos.agent.observe.starts.PROGRAM_PATIENCE", 0.0)
    host.settle()
    assert start.process.pid in tasks.read_tasks(host.resctrl, "")
    assert host.groups() == before


def test_a_process_that_is_the_vms_qemu_keeps_its_group_before_a_pass_sees_it(
    make_start: MakeStart, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = make_start(OWN)
    start.arguments = ("-uuid", start.uuid)
    start.announce()
    start.fork()
    monkeypatch.setattr("vmqos.agent.observe.starts.PROGRAM_PATIENCE", 0.0)
    host.settle()
    assert tasks.read_tasks(host.resctrl, start.group) == {start.process.pid}


@pytest.mark.parametrize("leaves", [False, True])
def test_a_vm_that_comes_by_migration_is_moved_before_its_memory_comes_unless_told_otherwise(
    make_start: MakeStart, host: Host, leaves: bool
) -> None:
    start = make_start(OWN)
    start.early = EarlyStart(host.resctrl, host.reconciler.starting, leaves_incoming=leaves)
    start.status = replace(start.status, is_incoming=True)
    start.announce()
    assert start.group in host.groups()
    start.fork()
    assert tasks.read_tasks(host.resctrl, start.group) == (set() if leaves else {start.process.pid})


def test_what_can_not_be_had_is_left_to_a_pass(make_start: MakeStart, host: Host) -> None:
    before = host.groups()
    for specs in ({}, {"hw:cache_ways": "99"}, {"hw:cache_ways": "many"}, {"other": "1"}):
        start = make_start(specs)
        assert start.announce() == {"instance"}
        assert start.fork() == {"instance"}
        assert tasks.read_tasks(host.resctrl, "") >= {start.process.pid}
    assert host.groups() == before


def test_nothing_is_done_before_the_first_pass(host: Host, starts: list[Start]) -> None:
    start = Start(host, OWN)
    starts.append(start)
    assert start.announce() == {"instance"}
    assert not host.groups()


def test_a_vm_is_born_anew_before_a_pass_knows_of_its_end(make_start: MakeStart, host: Host) -> None:
    uuid = host.boot(OWN)
    host.settle()
    host.libvirt.shut_off(uuid)
    start = make_start(OWN, uuid=uuid)
    start.announce()
    start.fork()
    with no_writes(host):
        host.settle()
    threads = start.make_threads("CPU 0/KVM")
    start.run()
    host.settle()
    assert tasks.read_tasks(host.resctrl, start.group) == threads
    assert host.told(uuid).state is PromiseState.KEPT


def test_a_refusal_of_the_kernel_is_left_to_a_pass(make_start: MakeStart, host: Host) -> None:
    start = make_start(OWN)

    def refuse(path: str) -> None:
        if path == f"{start.group}/schemata":
            raise OSError(22, "Invalid argument")

    host.resctrl.before = refuse
    assert start.announce() == {"instance"}
    host.resctrl.before = lambda path: None
    assert start.fork() == {"instance"}
    start.run()
    host.settle()
    assert host.told(start.uuid).state is PromiseState.KEPT


def test_what_is_predicted_is_what_a_pass_finds(make_start: MakeStart, host: Host) -> None:
    for specs in (OWN, SHARED):
        start = make_start(specs)
        start.announce()
        predicted = host.reconciler.snapshot.resctrl
        assert predicted == resctrl_state.read(host.resctrl)


def test_what_is_told_of_a_class_is_so_although_a_start_has_moved_its_ways(host: Host, starts: list[Start]) -> None:
    member = host.boot(SHARED)
    host.settle()
    before = host.mask(CLASS)
    start = Start(host, {"hw:cache_ways": "4"})
    starts.append(start)
    start.announce()
    assert host.mask(CLASS) != before, "the start has moved the class's ways"
    # libvirt may need a minute for the rest of the start: it opens images and devices.
    host.settle()
    assert str(host.told(member).masks[0]) == host.mask(CLASS)


@contextlib.contextmanager
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Of how many VMs each plan meanwhile is."""
    made, plan = list[int](), allocation.plan

    def noted(*asked: Any) -> allocation.Plan:
        made.append(len(asked[2]))
        return plan(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(allocation, "plan", noted)
        yield made


def test_a_vm_that_asks_for_what_a_member_of_a_class_asks_for_needs_no_plan(
    make_start: MakeStart, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.boot(SHARED)
    host.settle()
    host.run()
    for _ in range(3):
        start = make_start(SHARED)
        with plans(monkeypatch) as made:
            start.announce()
        assert not made and start.group in host.resctrl.directories(f"{CLASS}/mon_groups")
        assert host.reconciler.snapshot.resctrl == resctrl_state.read(host.resctrl)
        start.fork()
        start.run()
        with plans(monkeypatch) as made:
            host.settle()
        assert made, "a pass plans"
        assert host.told(start.uuid).state is PromiseState.KEPT


@pytest.mark.parametrize("why", ["other ways", "another program", "a member", "an earlier start", "work that is left"])
def test_a_vm_is_planned_for_where_it_may_get_something_else_than_the_members_of_a_class(
    host: Host, starts: list[Start], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    member = host.boot(SHARED)
    other = host.boot(SHARED) if why == "work that is left" else None
    host.settle()
    host.run()
    if other:
        with monkeypatch.context() as short:
            # There is time for the tasks of one VM, and so for the other one's in the next pass.
            short.setattr(LockShare, "is_over", lambda self, part=1.0, at_least=0.0: True)
            host.run(everything=True)
        assert host.reconciler.is_unfinished
    if why == "another program":
        host.resctrl.mkdir("foreign")
    specs = {**SHARED, "hw:cache_ways": "3"} if why == "other ways" else SHARED
    start = Start(host, specs, uuid=member if why == "a member" else "")
    starts.append(start)
    if why == "an earlier start":
        earlier = Start(host, OWN, uuid=start.uuid)
        starts.append(earlier)
        earlier.announce()
        host.reconciler._memory.is_settled = True
    with plans(monkeypatch) as made:
        start.announce()
    assert made == [1 if why == "a member" else 3 if other else 2]


def test_another_programs_group_is_seen_even_since_the_last_pass(make_start: MakeStart, host: Host) -> None:
    host.resctrl.mkdir("foreign")
    host.resctrl.write("foreign/schemata", "L3:0=7f")
    start = make_start({"hw:cache_ways": "2"})
    host.settle()
    host.resctrl.write("foreign/schemata", "L3:0=1ff")
    start.announce()
    mine = int(host.mask(start.group), 16) if start.group in host.groups() else 0
    assert not mine & 0x1FF


def test_a_start_waits_for_the_pass_that_hears_of_a_cache_that_came_online(make_start: MakeStart, host: Host) -> None:
    machine = host.resctrl.machine
    cpus = next(cache.cpus for cache in machine.hardware.profile.topology.caches(3) if cache.id == 1)
    for cpu in cpus:
        machine.set_online(cpu, False)
    host.settle()
    for cpu in cpus:
        machine.set_online(cpu, True)
    start = make_start(OWN)
    start.announce()
    start.fork()
    assert start.group not in host.groups()
    start.run()
    host.settle()
    assert host.told(start.uuid).state is PromiseState.KEPT and host.told(start.uuid).masks.keys() == {0, 1}


def test_another_programs_group_that_a_start_was_the_first_to_see_is_told_of(host: Host, starts: list[Start]) -> None:
    owner = host.boot(OWN)
    host.settle()
    assert host.told(owner).state is PromiseState.KEPT
    host.resctrl.mkdir("foreign")
    host.resctrl.write("foreign/schemata", "L3:0=7ff")
    start = Start(host, SHARED)
    starts.append(start)
    start.announce()
    assert start.group in host.resctrl.directories(f"{CLASS}/mon_groups"), "the start has read resctrl"
    host.settle()
    told = host.told(owner)
    assert told.state is PromiseState.DEGRADED and "foreign" in told.reason.text


def test_what_a_start_finds_to_plan_while_a_pass_begins_is_not_forgotten(host: Host) -> None:
    host.reconciler._memory.is_settled = True

    class NoOther:
        """What is tried on a VM, and the start comes while that is compared."""

        def __eq__(self, other: object) -> bool:
            host.reconciler._memory.is_settled = False
            return True

        __hash__ = None  # type: ignore[assignment]

    host.reconciler.request(Change(), {}, NoOther())  # type: ignore[arg-type]
    assert not host.reconciler._memory.is_settled


def test_others_give_way_until_qemu_is_forked_and_for_as_long_as_they_like(make_start: MakeStart) -> None:
    start = make_start(OWN)
    began = time.monotonic()
    start.early.give_way(10.0)
    start.announce()
    start.early.give_way(0.0)
    assert time.monotonic() - began < 9, "nothing was waited for so far"
    start.early.give_way(10.0)
    assert time.monotonic() - began >= FORK
    start.announce()
    start.fork()
    began = time.monotonic()
    start.early.give_way(10.0)
    assert time.monotonic() - began < 9


def test_a_start_is_not_taken_for_an_earlier_one_of_which_the_end_was_not_heard(
    host: Host, make_start: MakeStart
) -> None:
    start = make_start(OWN)
    start.announce()
    assert start.group in host.groups()
    # The start failed, and a pass gave the group back.
    host.reconciler.starting.starts.end(start.uuid)
    host.settle()
    assert start.group not in host.groups()
    start.status = replace(start.status, domain=replace(start.status.domain, libvirt_id=78))
    start.announce()
    assert start.group in host.groups()
    start.fork()
    assert start.process.pid in tasks.read_tasks(host.resctrl, start.group)
