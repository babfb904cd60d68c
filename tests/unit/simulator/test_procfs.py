# SPDX-License-Identifier: Apache-2.0
"""The real ``/proc`` tells which tasks there are and which are new."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmqos.simulator.hardware.tasks import Assignment, Task
from vmqos.simulator.procfs import ProcFs


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def _known(*tids: int, start: int = 0) -> dict[int, Assignment]:
    """Tasks that have something to pass on."""
    return {tid: Assignment(Task(tid, start), 1, 1) for tid in tids}


HERE = _known(os.getpid())


def test_a_task_is_found_with_its_start(child: subprocess.Popen[bytes]) -> None:
    task, again = ProcFs().find(child.pid), ProcFs().find(child.pid)
    assert task is not None
    assert task == again and task.tid == child.pid
    assert task.start > 0


def test_a_process_is_told_with_its_parent_and_a_thread_with_its_leader() -> None:
    processes = ProcFs()
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    child = subprocess.Popen(["sleep", "1000"])
    try:
        creators = {newcomer.task.tid: newcomer.creator for newcomer in processes.newcomers(HERE)}
        assert creators[child.pid] == os.getpid()
        assert creators[thread.native_id or 0] == os.getpid()
        assert not {child.pid, thread.native_id} & {newcomer.task.tid for newcomer in processes.newcomers(HERE)}
    finally:
        event.set()
        thread.join()
        child.kill()
        child.wait()


def test_many_new_tasks_are_found_too() -> None:
    processes = ProcFs()
    event = threading.Event()
    threads = [threading.Thread(target=event.wait) for _ in range(300)]
    for thread in threads:
        thread.start()
    child = subprocess.Popen(["sleep", "1000"])
    try:
        creators = {newcomer.task.tid: newcomer.creator for newcomer in processes.newcomers(HERE)}
        assert {creators.get(thread.native_id or 0) for thread in threads} == {os.getpid()}
        assert creators[child.pid] == os.getpid()
    finally:
        event.set()
        for thread in threads:
            thread.join()
        child.kill()
        child.wait()


def test_threads_that_are_not_new_are_not_asked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    event = threading.Event()
    old = [threading.Thread(target=event.wait) for _ in range(300)]
    for thread in old:
        thread.start()
    processes = ProcFs()
    new = [threading.Thread(target=event.wait) for _ in range(100)]
    for thread in new:
        thread.start()
    asked, stat = [], processes._stat

    def counted(path: str) -> list[str]:
        asked.append(path)
        return stat(path)

    monkeypatch.setattr(processes, "_stat", counted)
    try:
        found = {newcomer.task.tid for newcomer in processes.newcomers(HERE)}
        assert {thread.native_id for thread in new} <= found
        assert not {f"{thread.native_id}/task/{thread.native_id}" for thread in old} & set(asked)
    finally:
        event.set()
        for thread in old + new:
            thread.join()


def test_nobody_is_new_where_nobody_has_anything_to_pass_on(child: subprocess.Popen[bytes]) -> None:
    processes = ProcFs()
    later = subprocess.Popen(["sleep", "1000"])
    try:
        assert processes.newcomers({}) == []
    finally:
        later.kill()
        later.wait()


def test_where_ids_may_have_gone_round_start_times_decide(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = ProcFs()
    known = processes.find(child.pid)
    assert known is not None
    monkeypatch.setattr("vmqos.simulator.procfs._SILENCE", -1.0)
    monkeypatch.setattr(processes, "_may_have_gone_round", lambda: True)
    later = subprocess.Popen(["sleep", "1000"])
    try:
        same = {child.pid: Assignment(known, 1, 1)}
        found = {newcomer.task.tid: newcomer.creator for newcomer in processes.newcomers(same)}
        assert found[later.pid] == os.getpid()
        reused = _known(child.pid, start=known.start - 1)
        assert child.pid in [newcomer.task.tid for newcomer in processes.newcomers(reused)]
    finally:
        later.kill()
        later.wait()


@pytest.mark.parametrize("passed", [1, 500])
def test_a_task_whose_id_is_passed_over_because_it_has_it_is_not_new(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, passed: int
) -> None:
    time.sleep(0.05)
    processes = ProcFs()
    # The ids have gone round, and the next ones would be this task's.
    monkeypatch.setattr(processes, "_last_pid", child.pid - passed)
    later = subprocess.Popen(["sleep", "1000"])
    try:
        found = {newcomer.task.tid for newcomer in processes.newcomers(HERE)}
        assert later.pid in found and child.pid not in found
    finally:
        later.kill()
        later.wait()


def test_a_zombie_lives_until_it_is_reaped() -> None:
    processes = ProcFs()
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.alive(child.pid) and processes.find(child.pid) is not None
    child.wait()
    assert not processes.alive(child.pid) and processes.find(child.pid) is None


def test_what_is_gone_has_no_owner_and_no_usage() -> None:
    processes = ProcFs()
    assert processes.owners(0) is None
    assert processes.usage("0") is None


def test_usage_and_owners_are_this_processs() -> None:
    processes = ProcFs()
    usage = processes.usage(str(os.getpid()))
    assert usage is not None
    assert usage.seconds > 0 and usage.resident > 1 << 20
    assert processes.owners(os.getpid()) == (os.getresuid()[0], os.getresuid()[2])
    assert os.getpid() in processes.tids()


def test_a_name_with_brackets_and_blanks_does_not_confuse(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/pid_max").write_text("32768\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nprocesses 99\n")
    (tmp_path / "loadavg").write_text("0.00 0.00 0.00 1/2 77\n")
    (tmp_path / "5/task/5").mkdir(parents=True)
    numbers = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "5/task/5/stat").write_text(f"5 (a) b ) (c) S {numbers}\n")
    (tmp_path / "5/status").write_text("Name:\ta) b\nTgid:\t5\nUid:\t1\t2\t3\t4\n")
    processes = ProcFs(str(tmp_path))
    task = processes.find(5)
    assert task is not None
    assert task.start == 22
    assert processes.owners(5) == (1, 3)
