# SPDX-License-Identifier: Apache-2.0
"""Who gets the lock, and when, on plain directories: ``flock`` is the same there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.eventually import eventually
from vmqos.resctrl import exceptions, lock
from vmqos.resctrl.filesystem import Filesystem

LONG = 60.0

HOLDER = """
import fcntl, os, sys, time
directory, operation, hold, gap = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
while True:
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, operation)
    print("held", flush=True)
    time.sleep(hold)
    os.close(descriptor)
    time.sleep(gap)
"""

SHARED, EXCLUSIVE = "1", "2"


@contextlib.contextmanager
def held_elsewhere(root: Path, operation: str, hold: float = 1000.0, gap: float = 0.0) -> Iterator[int]:
    """Another process takes the lock and gives it back, again and again; its PID."""
    command = [sys.executable, "-c", HOLDER, str(root), operation, str(hold), str(gap)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder.pid
        finally:
            holder.kill()


def waiters() -> int:
    return sum(thread.name == "resctrl-lock" for thread in threading.enumerate())


def descriptors_of(root: Path) -> int:
    links = (f"/proc/self/fd/{descriptor}" for descriptor in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link) == str(root) for link in links)


@pytest.fixture(autouse=True)
def nobody_waits() -> None:
    """A thread of a test before this one may be late with its end."""
    eventually(lambda: waiters() == 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def fs(root: Path) -> Filesystem:
    return Filesystem(str(root))


def test_a_writer_gets_hold_of_the_short_gaps_that_a_reader_leaves(fs: Filesystem, root: Path) -> None:
    with held_elsewhere(root, SHARED, hold=0.1, gap=0.0003):
        for _ in range(4):
            with fs.lock(exclusive=True, timeout=6.0):
                time.sleep(0.01)


def test_the_readers_of_a_process_let_its_writer_go_first(fs: Filesystem) -> None:
    stop, inside = threading.Event(), threading.Semaphore(0)

    def read() -> None:
        while not stop.is_set():
            with fs.lock(exclusive=False, timeout=LONG):
                inside.release()
                time.sleep(0.02)

    readers = [threading.Thread(target=read) for _ in range(6)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(10):
            # So many turns that some reader is inside at any time.
            for _ in range(12):
                assert inside.acquire(timeout=LONG)
            with fs.lock(exclusive=True, timeout=LONG):
                pass
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_a_reader_does_not_wait_for_ever_for_a_writer_whom_others_keep_out(fs: Filesystem, root: Path) -> None:
    with held_elsewhere(root, SHARED):
        failed = threading.Event()

        def write() -> None:
            with contextlib.suppress(exceptions.LockTimeout), fs.lock(exclusive=True, timeout=8.0):
                pass
            failed.set()

        writer = threading.Thread(target=write)
        writer.start()
        eventually(lambda: waiters() == 1)
        with fs.lock(exclusive=False, timeout=6.0):
            assert not failed.is_set()
        writer.join()


@pytest.mark.parametrize(("operation", "words"), [(SHARED, "to read"), (EXCLUSIVE, "to write")])
def test_who_keeps_the_lock_is_told_and_what_for(fs: Filesystem, root: Path, operation: str, words: str) -> None:
    with (
        held_elsewhere(root, operation) as pid,
        pytest.raises(exceptions.LockTimeout, match=rf"held by process {pid} \(python\S*\) {words}"),
        fs.lock(exclusive=True, timeout=0.1),
    ):
        pass


def test_waiting_in_vain_again_and_again_adds_no_thread_and_leaves_nothing(fs: Filesystem, root: Path) -> None:
    with held_elsewhere(root, EXCLUSIVE):
        for exclusive in (True, False) * 5:
            with pytest.raises(exceptions.LockTimeout), fs.lock(exclusive, timeout=0.02):
                pass
            assert waiters() <= 2, "one for each kind"
    eventually(lambda: waiters() == 0)
    assert descriptors_of(root) == 0
    with held_elsewhere(root, EXCLUSIVE):
        pass


def test_where_no_thread_can_wait_nothing_stays_open(
    fs: Filesystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with held_elsewhere(root, EXCLUSIVE), pytest.raises(RuntimeError), fs.lock(exclusive=True, timeout=LONG):
        pass
    assert descriptors_of(root) == 0


def test_who_comes_back_has_kept_the_place_in_the_queue(fs: Filesystem, root: Path) -> None:
    with held_elsewhere(root, EXCLUSIVE):
        with pytest.raises(exceptions.LockTimeout), fs.lock(exclusive=True, timeout=0.05):
            pass
        got = threading.Event()

        def lock() -> None:
            with fs.lock(exclusive=True, timeout=LONG):
                assert descriptors_of(root) == 1
                got.set()

        second = threading.Thread(target=lock)
        second.start()
        time.sleep(0.1)
        assert waiters() == 1
    assert got.wait(LONG)
    second.join()
    assert descriptors_of(root) == 0


def test_a_wait_for_a_root_that_was_unmounted_since_does_not_count_for_the_new_one(fs: Filesystem, root: Path) -> None:
    old = root.with_name("old")
    with held_elsewhere(root, EXCLUSIVE):
        with pytest.raises(exceptions.LockTimeout), fs.lock(exclusive=True, timeout=0.05):
            pass
        root.rename(old)
        root.mkdir()
        with held_elsewhere(root, SHARED):
            with pytest.raises(exceptions.LockTimeout), fs.lock(exclusive=True, timeout=0.05):
                pass
            assert waiters() == 2
        with fs.lock(exclusive=True, timeout=LONG):
            pass
    eventually(lambda: waiters() == 0)


NAMES = {
    "an escape sequence": (b"\x1b[2J\x1b]0;x\x07", "\x1b[2J\x1b]0;x\x07"),
    "breaks of lines": (b"a\nFLOCK\r\x85b", "a\nFLOCK\r\\x85b"),
    "no text": (b"\xff\xfe", "\\xff\\xfe"),
    "blanks": (b" a ", " a "),
}


@pytest.mark.parametrize(("name", "told"), NAMES.values(), ids=NAMES)
def test_a_holder_of_any_name_is_told_as_it_is(root: Path, name: bytes, told: str) -> None:
    program = f"open('/proc/self/comm', 'wb').write({name!r})\n{HOLDER}"
    command = [sys.executable, "-c", program, str(root), SHARED, "60", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        descriptor = os.open(root, os.O_RDONLY)
        try:
            assert lock.who_holds(descriptor) == [f"process {holder.pid} ({told}) to read"]
        finally:
            os.close(descriptor)
            holder.kill()
