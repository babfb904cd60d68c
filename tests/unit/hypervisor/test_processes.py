# SPDX-License-Identifier: Apache-2.0
"""What /proc says of processes: seen on processes of our own."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import Process


class Spawn(Protocol):
    """Start a Python program that says a word when it is ready."""

    def __call__(self, program: str, *arguments: str) -> subprocess.Popen[str]: ...


READY = "print('ready', flush=True); input()"


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    children: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def ended() -> int:
    """The PID of a process that has ended and was reaped."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_process_is_itself_while_it_lives(spawn: Spawn) -> None:
    child = spawn(READY)
    process = processes.of_pid(child.pid)
    assert processes.still(process)
    child.communicate("")
    assert not processes.still(process)


def test_a_process_of_another_start_time_is_another_process() -> None:
    process = processes.of_pid(os.getpid())
    assert not processes.still(Process(process.pid, process.start_time - 1))


def test_a_zombie_lives_no_more(spawn: Spawn) -> None:
    child = spawn(READY)
    process = processes.of_pid(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.exists(child.pid)
    assert not processes.still(process)


@pytest.mark.parametrize(
    "comm", ["a b", ") R 1 (", "((", "x\\ty", "\u00fc", "a\nTgid:\t1\nb", "\rTgid:\t1\r", "\x1b[2J\x85"]
)
def test_a_name_may_hold_anything(spawn: Spawn, comm: str) -> None:
    child = spawn(f"open('/proc/self/comm', 'w').write({comm!r}); {READY}")
    assert processes.identify(child.pid) == processes.Identity(child.pid, comm, False)
    assert processes.still(processes.of_pid(child.pid))


def test_a_thread_knows_its_process() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    assert thread.native_id is not None
    try:
        assert processes.identify(thread.native_id).tgid == os.getpid()
        assert thread.native_id in processes.tasks(os.getpid())
    finally:
        release.set()
        thread.join()


@pytest.mark.parametrize(
    "look",
    [
        processes.of_pid,
        processes.identify,
        processes.tasks,
        processes.uids,
        processes.cgroups,
        lambda pid: processes.says(pid, [b"x"]),
        lambda pid: processes.cpu_affinity([pid]),
    ],
)
def test_a_process_that_has_ended_is_said_to_have(look: Callable[[int], object], ended: int) -> None:
    with pytest.raises(exceptions.ProcessVanished, match=str(ended)):
        look(ended)
    assert not processes.exists(ended)


def test_the_affinity_is_that_of_all_threads_together(spawn: Spawn, ended: int) -> None:
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    children = [spawn(f"import os; os.sched_setaffinity(0, {{{cpu}}}); {READY}") for cpu in (first, last)]
    assert processes.cpu_affinity([children[0].pid]) == {first}
    assert processes.cpu_affinity([ended, *(child.pid for child in children)]) == {first, last}
    assert list(processes.affinities([ended, *(child.pid for child in children)])) == [{first}, {last}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([b"-uuid", b"u-1"], True),
        ([b"", b"a b"], True),
        ([b"a b"], True),
        ([b"a"], False),
        ([b"b"], False),
        ([b"-uuid", b"u-"], False),
        ([b"uuid", b"u-1"], False),
        ([b"u-1", b"-uuid"], False),
    ],
)
def test_a_process_says_whole_arguments_that_stand_side_by_side(
    spawn: Spawn, arguments: list[bytes], said: bool
) -> None:
    assert processes.says(spawn(READY, "-uuid", "u-1", "", "a b").pid, arguments) is said


def test_an_argument_is_found_across_the_pieces_that_are_read(spawn: Spawn) -> None:
    for size in range(65400, 65600, 7):
        child = spawn(READY, "x" * size, "-uuid", "u-1")
        assert processes.says(child.pid, [b"-uuid", b"u-1"])
        assert not processes.says(child.pid, [b"-uuid", b"u-2"])


def test_a_process_has_its_users(spawn: Spawn) -> None:
    assert processes.uids(spawn(READY).pid) == (os.getuid(), os.geteuid())


def test_a_file_that_is_longer_than_its_bound_is_an_error_and_none_that_is_as_long(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 70000)
    assert len(processes.read_file(str(tmp_path / "file"), most=70000)) == 70000
    for most in (0, 1, 65536, 69999):
        with pytest.raises(OSError, match="longer than") as caught:
            processes.read_file(str(tmp_path / "file"), most=most)
        assert caught.value.errno == errno.EFBIG


def test_a_process_of_too_many_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_THREADS", 2)
    release = threading.Event()
    threads = [threading.Thread(target=release.wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(exceptions.TooManyThreads, match=str(os.getpid())):
            processes.tasks(os.getpid())
        with processes.opened(processes.of_pid(os.getpid())) as folder, pytest.raises(exceptions.TooManyThreads):
            processes.tasks(os.getpid(), folder)
    finally:
        release.set()
        for thread in threads:
            thread.join()


def test_all_pids_has_our_own() -> None:
    assert os.getpid() in processes.all_pids()


@pytest.mark.parametrize(
    ("comm", "is_kernel_thread", "pid"),
    [
        ("vhost-4711", True, 4711),
        ("kvm-pit/4711", True, 4711),
        ("vhost-4711", False, None),
        ("kvm-nx-lpage-re", True, None),
        ("vhost-", True, None),
        ("kworker/0:1", True, None),
    ],
)
def test_a_kernel_thread_names_the_process_it_serves(comm: str, is_kernel_thread: bool, pid: int | None) -> None:
    assert processes.Identity(1, comm, is_kernel_thread).serves_pid == pid


def test_the_stat_of_a_whole_process_is_never_read_because_the_kernel_adds_up_all_threads_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pid, asked, open_file = os.getpid(), list[str](), os.open

    def noted(path: str, *arguments: Any, dir_fd: int | None = None, **details: Any) -> int:
        folder = "" if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
        asked.append(os.path.join(folder, path))
        return open_file(path, *arguments, dir_fd=dir_fd, **details)

    monkeypatch.setattr(os, "open", noted)
    process = processes.of_pid(pid)
    assert processes.still(process)
    processes.identify(pid)
    with processes.opened(process) as descriptor:
        processes.thread_of(descriptor, pid)
    stats = [path for path in asked if path.endswith("/stat")]
    assert len(stats) >= 5
    assert all("/task/" in path for path in stats)
