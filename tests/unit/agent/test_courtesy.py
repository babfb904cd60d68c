# SPDX-License-Identifier: Apache-2.0
"""A full audit gives way to VMs that end, change or start, but not for ever: the real loop, processes as VMs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.agent.loop_host import LONG, Host, agent_in
from tests.unit.clock import Clock
from tests.unit.eventually import eventually
from vmqos.agent import courtesy
from vmqos.agent.courtesy import Courtesy, LockShare
from vmqos.agent.observe.running_vms import VmList
from vmqos.allocation import PromiseState

ONE = {"hw:cache_ways": "1"}
STAY = 4


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Host]:
    """However slow this machine is, time runs out for no pass."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(LockShare, "end", lambda self, part=1.0: math.inf)
    monkeypatch.setattr(courtesy, "LONGEST", LONG)
    with agent_in(tmp_path, monkeypatch) as found:
        yield found


def tasks_of(uuids: list[str]) -> set[str]:
    """The files that an audit reads of VMs with groups of their own."""
    return {f"vmqos.{uuid}/tasks" for uuid in uuids}


@pytest.mark.parametrize("at", ["a look", "info/L3/cbm_mask", "schemata", "tasks", "a VM's tasks"])
def test_an_end_that_comes_during_a_full_audit_is_served_before_the_audits_rest(host: Host, at: str) -> None:
    stay, ends = [host.libvirt.boot(ONE) for _ in range(STAY)], host.libvirt.boot(ONE)
    host.settle()
    touched = list[str]()

    def note(path: str) -> None:
        touched.append(path)
        if ends in host.libvirt.vms and path in {at, *(tasks_of(stay) if at == "a VM's tasks" else ())}:
            end()

    def end() -> None:
        process = host.libvirt.vms[ends].process
        host.libvirt.shut_off(ends)
        host.agent._on_process_end({process})

    if at == "a look":
        describe = host.libvirt.describe
        host.libvirt.describe = lambda uuid: (end() if ends in host.libvirt.vms else None, describe(uuid))[1]  # type: ignore[method-assign,func-returns-value]
    host.resctrl.before = note
    host.agent._on_change(None)
    host.agent.run_passes()
    host.settle()
    group = f"vmqos.{ends}"
    before, after = touched[: touched.index(group)], touched[touched.index(group) :]
    assert len(tasks_of(stay) & set(before)) == (at == "a VM's tasks")
    if at == "tasks":
        # It reads the modes of all groups once.
        assert before[before.index("tasks") :].count("mode") == 1, (
            "the next pass followed, and nothing was judged before"
        )
    assert ("info/L3/cbm_mask" in before) == (at != "a look"), "the audit is not begun where the end came first"
    assert "info/L3/cbm_mask" in touched and tasks_of(stay) <= {*before, *after}, "the audit went on"
    assert {path for path in touched if path.startswith("vmqos.") and "/" not in path} == {group}, (
        "no other was touched"
    )
    assert [host.state(uuid) for uuid in stay] == [PromiseState.KEPT] * STAY


@pytest.mark.parametrize("at", ["a look", "schemata", "a VM's tasks"])
def test_a_change_that_comes_during_a_full_audit_is_served_before_the_audits_rest(host: Host, at: str) -> None:
    changes, stay = host.libvirt.boot(ONE), [host.libvirt.boot(ONE) for _ in range(STAY)]
    host.settle()
    touched = list[str]()
    looked = len(host.libvirt.described)

    def note(path: str) -> None:
        touched.append(path)
        if path in {at, *(tasks_of(stay) if at == "a VM's tasks" else ())}:
            change()

    def change() -> None:
        if host.libvirt.vms[changes].metadata.extra_specs == ONE:  # type: ignore[union-attr]
            host.libvirt.resize(changes, {"hw:cache_ways": "2"})
            host.agent._on_change(changes)

    if at == "a look":
        describe = host.libvirt.describe
        # The VM itself was looked at before: it came first.
        host.libvirt.describe = lambda uuid: (change() if uuid == stay[0] else None, describe(uuid))[1]  # type: ignore[method-assign,func-returns-value]
    write = host.resctrl.write

    def noted(relative: str, text: str) -> None:
        touched.append(f"write {relative}")
        write(relative, text)

    host.resctrl.write = noted  # type: ignore[method-assign]
    host.resctrl.before = note
    host.agent._on_change(None)
    host.agent.run_passes()
    host.settle()
    before = touched[: touched.index(f"write vmqos.{changes}/schemata")]
    assert len(tasks_of(stay) & set(before)) == (at == "a VM's tasks")
    assert host.ways(changes) == 2
    assert tasks_of(stay) <= set(touched) and {*stay, changes} <= set(host.libvirt.described[looked:])


def test_a_start_that_waits_for_the_lock_ends_an_audit_that_has_changed_nothing(host: Host) -> None:
    stay = [host.libvirt.boot(ONE) for _ in range(STAY)]
    host.settle()
    touched, waits = list[str](), True
    host.agent.reconciler.is_wanted = lambda: waits
    host.resctrl.before = touched.append
    host.agent._on_change(None)
    assert host.agent._run_pass() and touched == []
    waits = False
    host.settle()
    assert tasks_of(stay) <= set(touched)


def test_the_rest_of_an_audit_gives_way_too_and_a_pass_that_a_vm_waits_for_does_not(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    vms = [host.libvirt.boot(ONE) for _ in range(STAY)]
    host.settle()
    touched = list[str]()
    host.resctrl.before = touched.append
    host.agent._on_change(None)
    with monkeypatch.context() as hasty:
        hasty.setattr(LockShare, "is_over", lambda self, part=1.0, at_least=0.0: True)
        assert host.agent._run_pass() and host.agent.reconciler.is_unfinished
    done = len(touched)
    with monkeypatch.context() as busy:
        busy.setattr(host.agent.reconciler, "has_news", lambda: True)
        assert host.agent._run_pass() and len(touched) == done
        new = host.libvirt.boot(ONE)
        host.agent._on_change(new)
        host.agent._run_pass()
        assert host.state(new) is PromiseState.KEPT
    host.settle()
    assert tasks_of(vms) <= set(touched)


def test_the_pass_that_brings_a_new_policy_gives_way_to_no_start(host: Host) -> None:
    host.libvirt.boot(ONE)
    host.settle()
    host.agent.reconciler.is_wanted = lambda: True
    # As a configuration does that is read again.
    policy = host.agent._policy = replace(host.agent._policy, default_ways_min=host.agent._policy.default_ways_min + 1)
    host.agent._on_change(None)
    host.agent._run_pass()
    assert host.agent.snapshot.policy == policy


def test_an_audit_that_was_put_off_is_made_at_once_where_each_vm_was_looked_at_for_its_own_event(host: Host) -> None:
    vm = host.libvirt.boot(ONE)
    host.settle()
    touched = list[str]()
    host.resctrl.before = touched.append
    host.agent._on_change(None)
    host.agent._on_change(vm)
    host.agent.run_passes()
    assert tasks_of([vm]) <= set(touched) and not host.agent._owed.claim().everything


def test_events_without_end_leave_an_audit_a_pass_in_each_while(host: Host) -> None:
    host.agent._courtesy._longest = 0.05
    vms = [host.libvirt.boot(ONE) for _ in range(STAY)]
    host.settle()
    stray = host.libvirt.vms[vms[-1]].process.pid
    host.resctrl.write(f"vmqos.{vms[0]}/tasks", str(stray))
    looked = len(host.libvirt.described)

    def tell(path: str) -> None:
        host.agent._running_vms.note_end(set())
        host.agent._on_change(vms[0])

    host.resctrl.before = tell
    host.agent._on_change(None)

    def is_over() -> bool:
        host.agent.run_passes()
        return not host.agent._owed.claim().everything

    eventually(is_over)
    assert set(vms) <= set(host.libvirt.described[looked:])

    def is_mended() -> bool:
        host.agent.run_passes()
        return str(stray) in host.resctrl.read(f"vmqos.{vms[-1]}", "tasks").split()

    eventually(is_mended)


def test_passes_give_way_in_a_row_for_so_long_and_then_one_does_not() -> None:
    clock, given = Clock(), list[bool]()
    ours = Courtesy(longest=1.0, clock=clock)
    for _ in range(10):
        ours.end_pass()
        assert not ours.is_given
        given.append(ours.gives_way())
        assert ours.is_given is given[-1]
        clock.now += 0.5
    assert given == [True, True, True, False, True, True, True, False, True, True]


def test_what_reads_counters_gives_way_until_a_vm_that_ended_or_changed_is_served(host: Host) -> None:
    host.agent._calm.set()
    host.agent.give_way_to_vms(LONG)
    vm = host.libvirt.boot(ONE)
    host.agent._on_change(vm)
    began = time.monotonic()
    host.agent.give_way_to_vms(0.05)
    assert 0.05 <= time.monotonic() - began < LONG, "no pass has served it, and patience ends"
    with host.running():
        host.agent.give_way_to_vms(LONG)
        assert host.state(vm) is PromiseState.KEPT
        process = host.libvirt.vms[vm].process
        host.libvirt.shut_off(vm)
        host.agent._on_process_end({process})
        host.agent.give_way_to_vms(LONG)
        assert host.state(vm) is None
    assert time.monotonic() - began < LONG


def test_what_reads_counters_gives_way_to_a_vm_whose_change_is_told_of_at_the_end_of_a_pass(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm, calm = host.libvirt.boot(ONE), list[bool]()
    look, last_step = host.agent._running_vms.look, host.agent._tell_changes
    host.settle()

    def note(everything: bool, patience: float) -> VmList:
        calm.append(host.agent._calm.is_set())
        return look(everything, patience)

    def change(error: str) -> None:
        last_step(error)
        if len(calm) == 1:
            host.agent._on_change(vm)

    monkeypatch.setattr(host.agent._running_vms, "look", note)
    monkeypatch.setattr(host.agent, "_tell_changes", change)
    with host.running():
        eventually(lambda: len(calm) > 1)
        assert not calm[1], "the pass that serves it begins only now"
        eventually(host.agent._calm.is_set)
