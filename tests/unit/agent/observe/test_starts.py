# SPDX-License-Identifier: Apache-2.0
"""Which starts are under way; what passes make of them is in ``test_early_start``."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.unit.agent.loop_host import LONG
from tests.unit.eventually import eventually
from vmqos.agent.act import move_tasks
from vmqos.agent.observe import command_lines
from vmqos.agent.observe.cache_vcpus import UNNAMED, CacheVcpus
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.starts import Starts
from vmqos.allocation import Request
from vmqos.extra_specs import CacheRequest
from vmqos.hypervisor import processes
from vmqos.hypervisor.exceptions import ProcessUnreadable
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.resctrl.filesystem import Filesystem

UUID = "00000001-0000-4000-8000-000000000000"
REQUEST = Request(UUID, CacheRequest(ways=2), frozenset({0}), 5)
ALIVE = processes.of_pid(os.getpid())
NAMELESS = {UUID: CacheVcpus(frozenset({0}), frozenset(), (), UNNAMED)}
ENDED = Process(ALIVE.pid, ALIVE.start_time - 1)


def seen(process: Process) -> dict[str, ObservedVm]:
    """A pass has seen the VM run as this process."""
    return {UUID: ObservedVm(VirtualMachine(UUID, "vm", 1, process, None, False, None), frozenset({0}))}


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    found = Starts(Filesystem(str(tmp_path)))
    found.begin({UUID: REQUEST})
    return found


def test_a_start_is_under_way_until_it_has_ended(starts: Starts) -> None:
    assert starts.under_way({}, {}) == ({UUID: REQUEST}, {})
    starts.end(UUID)
    assert starts.under_way({}, {}) == ({}, {})


def test_a_start_is_over_once_the_vm_is_seen_to_run(starts: Starts) -> None:
    starts.note_process(UUID, ALIVE, outside=7)
    kept, outside = starts.under_way(seen(ALIVE), {})
    assert kept == {} and outside[UUID].process == ALIVE
    assert starts.under_way({}, {}) == ({}, {}), "it is forgotten"


def test_a_start_is_over_once_the_vm_is_seen_to_run_before_its_process_was_noted(starts: Starts) -> None:
    assert starts.under_way(seen(ALIVE), {}) == ({}, {}), "a pass that moves its tasks counts what they had outside"
    assert starts.under_way({}, {}) == ({}, {}), "once the VM has ended, nothing is kept for it"


def test_an_earlier_run_that_is_still_seen_does_not_end_a_start_without_a_process(starts: Starts) -> None:
    assert starts.under_way(seen(ENDED), {}) == ({}, {})
    assert starts.under_way({}, {})[0] == {UUID: REQUEST}


def test_a_vm_whose_threads_have_no_names_yet_is_starting_for_a_moment_more(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts.note_process(UUID, ALIVE, outside=0)
    assert starts.under_way(seen(ALIVE), NAMELESS)[0] == {UUID: REQUEST}
    monkeypatch.setattr("vmqos.agent.observe.starts.PROGRAM_PATIENCE", 0.0)
    assert starts.under_way(seen(ALIVE), NAMELESS)[0] == {}


def test_an_earlier_run_of_the_vm_that_is_still_seen_asks_for_itself(starts: Starts) -> None:
    starts.note_process(UUID, ALIVE, outside=0)
    assert starts.under_way(seen(ENDED), {}) == ({}, {})
    assert starts.under_way({}, {})[0] == {UUID: REQUEST}, "the start goes on"


def test_a_start_whose_process_has_ended_is_over(starts: Starts) -> None:
    starts.note_process(UUID, ENDED, outside=0)
    assert starts.under_way({}, {}) == ({}, {})


def test_a_start_without_a_process_is_given_up_in_the_end(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.observe.starts.FORK_PATIENCE", 0.0)
    assert starts.under_way({}, {}) == ({}, {})


def test_a_start_goes_on_while_proc_does_not_tell_whether_its_process_lives(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: Process) -> bool:
        raise ProcessUnreadable(pid=process.pid, error="Too many open files")

    starts.note_process(UUID, ALIVE, outside=0)
    monkeypatch.setattr(processes, "still", refuse)
    assert starts.under_way({}, {})[0] == {UUID: REQUEST}


def test_a_process_in_a_vms_cgroup_is_not_asked_for_its_command_line(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    starts.note_process(UUID, ALIVE, outside=0)
    monkeypatch.setattr("vmqos.agent.observe.starts.PROGRAM_PATIENCE", 0.0)
    monkeypatch.setattr(processes, "says", lambda pid, arguments: asked.append(pid))
    monkeypatch.setattr(
        "vmqos.agent.observe.starts.cgroup.vm_cgroup", lambda pid: "/sys/fs/cgroup/machine-qemu\\x2d1.scope"
    )
    assert starts.under_way({}, {})[0] == {UUID: REQUEST}
    assert not asked, "its command line may be in memory that it never fills"


def test_a_process_that_does_not_let_its_command_line_be_read_holds_nothing_up_and_may_be_the_vms(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, given_back = threading.Event(), list[object]()

    def says(pid: int, arguments: object) -> bool:
        assert hung.wait(LONG)
        return False

    monkeypatch.setattr("vmqos.agent.observe.starts.PROGRAM_PATIENCE", 0.0)
    monkeypatch.setattr(processes, "says", says)
    monkeypatch.setattr(move_tasks, "place", lambda *found: given_back.append(found))
    starts.note_process(UUID, ALIVE, outside=0)
    began = time.monotonic()
    for _ in range(3):
        assert starts.under_way({}, {})[0] == {UUID: REQUEST}
    assert time.monotonic() - began < LONG / 2 and not given_back
    hung.set()
    monkeypatch.setattr(command_lines, "PATIENCE", LONG)
    eventually(lambda: starts.under_way({}, {})[0] == {})
    assert len(given_back) == 1
