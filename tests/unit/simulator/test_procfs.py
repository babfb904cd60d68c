# SPDX-License-Identifier: Apache-2.0
"""The real ``/proc`` tells which tasks there are and which are new."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmqos.simulator.procfs import ProcFs


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_a_task_is_found_with_its_family(child: subprocess.Popen[bytes]) -> None:
    task = ProcFs().find(child.pid)
    assert task is not None
    assert (task.tid, task.tgid, task.parent) == (child.pid, child.pid, os.getpid())
    assert task.creator == os.getpid()


def test_a_thread_is_found_by_its_id() -> None:
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        task = ProcFs().find(thread.native_id)
        assert task is not None
        assert (task.tgid, task.creator) == (os.getpid(), os.getpid())
    finally:
        event.set()
        thread.join()


def test_new_tasks_are_told_once() -> None:
    processes = ProcFs()
    child = subprocess.Popen(["sleep", "1000"])
    try:
        assert child.pid in [task.tid for task in processes.newcomers({})]
        assert child.pid not in [task.tid for task in processes.newcomers({})]
    finally:
        child.kill()
        child.wait()


def test_many_new_tasks_are_found_too() -> None:
    processes = ProcFs()
    for _ in range(600):
        subprocess.run(["true"], check=True)
    child = subprocess.Popen(["sleep", "1000"])
    try:
        assert child.pid in [task.tid for task in processes.newcomers({})]
    finally:
        child.kill()
        child.wait()


def test_after_a_long_silence_start_times_decide(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = ProcFs()
    known = processes.find(child.pid)
    assert known is not None
    monkeypatch.setattr(processes, "_pid_max", 0)
    later = subprocess.Popen(["sleep", "1000"])
    try:
        found = [task.tid for task in processes.newcomers({child.pid: known.start})]
        assert later.pid in found
        assert child.pid not in found
        assert child.pid in [task.tid for task in processes.newcomers({child.pid: known.start - 1})]
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
    (tmp_path / "loadavg").write_text("0.00 0.00 0.00 1/2 77\n")
    (tmp_path / "5").mkdir()
    numbers = " ".join(str(number) for number in range(4, 53))
    (tmp_path / "5/stat").write_text(f"5 (a) b ) (c) S {numbers}\n")
    (tmp_path / "5/status").write_text("Name:\ta) b\nTgid:\t5\nUid:\t1\t2\t3\t4\n")
    processes = ProcFs(str(tmp_path))
    task = processes.find(5)
    assert task is not None
    assert (task.parent, task.start) == (4, 22)
    assert processes.owners(5) == (1, 3)
