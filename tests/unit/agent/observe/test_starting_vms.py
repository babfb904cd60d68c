# SPDX-License-Identifier: Apache-2.0
"""Word of the VMs that libvirt is starting: files as libvirt writes them, and the kernel's own inotify."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.unit.eventually import eventually
from tests.unit.hypervisor.test_run_files import status
from vmqos.agent.observe.starting_vms import StartingVm, StartWatch
from vmqos.daemon.directory_watch import DirectoryWatch, EventsLost, FileEvent
from vmqos.hypervisor import processes
from vmqos.resctrl.exceptions import LockTimeout


class Watched:
    """A watch, and what it tells."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.told: queue.Queue[tuple[str, int] | str] = queue.Queue()
        self.settles = False
        self.fails: Exception | None = None
        self.watch = StartWatch(str(run_dir), self._on_start, self.told.put)

    def _on_start(self, found: Sequence[StartingVm]) -> set[str]:
        if self.fails:
            raise self.fails
        for starting in found:
            self.told.put((starting.file, starting.process.pid if starting.process else 0))
        return {starting.file for starting in found} if self.settles else set()

    def write(self, name: str, **values: str) -> None:
        """Put a status there, as libvirt does (``virFileRewrite``)."""
        new = self.run_dir / f"{name}.xml.new"
        new.write_text(status(**values))
        new.rename(self.run_dir / f"{name}.xml")

    def next(self) -> tuple[str, int] | str:
        return self.told.get(timeout=60)

    def sync(self) -> None:
        """Nothing else was told so far."""
        self.write("last")
        assert self.next() == ("last", 0)
        (self.run_dir / "last.xml").unlink()
        assert self.next() == "last"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    made.write("before")
    made.watch.start()
    while made.watch._watch is None:
        pass
    yield made
    made.watch.close()


def test_a_start_is_told_from_the_file_to_the_end(watched: Watched) -> None:
    watched.write("a")
    assert watched.next() == ("a", 0)
    watched.write("a", pid=str(os.getpid()))
    assert watched.next() == ("a", os.getpid())
    watched.write("a", pid=str(os.getpid()), state="running", reason="booted")
    watched.sync()
    (watched.run_dir / "a.xml").unlink()
    assert watched.next() == "a"


def test_the_process_is_the_one_that_has_the_pid_now(tmp_path: Path) -> None:
    watch = StartWatch(str(tmp_path), lambda found: set(), lambda file: None)
    Watched(tmp_path).write("a", pid=str(os.getpid()))
    starting = watch._read("a")
    assert starting is not None and starting.process == processes.of_pid(os.getpid())


def test_once_no_more_need_be_known_a_file_is_not_read_again(watched: Watched) -> None:
    watched.settles = True
    watched.write("a")
    assert watched.next() == ("a", 0)
    for _ in range(20):
        watched.write("a")
    watched.sync()
    (watched.run_dir / "a.xml").unlink()
    assert watched.next() == "a"
    watched.write("a")
    assert watched.next() == ("a", 0), "it is another VM's"


def test_a_vm_that_was_there_before_is_libvirts_to_tell_of(watched: Watched) -> None:
    watched.write("before")
    watched.sync()


@pytest.mark.parametrize("text", ["", "<domstatus/>", "no XML", status(state="running", reason="booted")])
def test_what_is_no_start_is_passed_over(watched: Watched, text: str) -> None:
    (watched.run_dir / "new").write_text(text)
    (watched.run_dir / "new").rename(watched.run_dir / "a.xml")
    (watched.run_dir / "a.pid").write_text("1")
    watched.sync()


def test_a_process_that_is_gone_is_passed_over(watched: Watched) -> None:
    watched.write("a", pid="9999999")
    watched.sync()


def test_a_fault_of_one_start_keeps_no_other_back(watched: Watched) -> None:
    watched.fails = RuntimeError("a fault")
    watched.write("a")
    (watched.run_dir / "a.xml").unlink()
    assert watched.next() == "a"
    watched.write("b")
    watched.fails = None
    watched.write("c")
    while watched.next() != ("c", 0):
        pass


def test_a_fault_in_the_watching_itself_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vmqos.agent.observe.starting_vms.RETRY", 0.01)
    faults, read = [ValueError("filedescriptor out of range in select()")], StartWatch._read

    def fail_once(watch: StartWatch, file: str) -> StartingVm | None:
        if faults:
            raise faults.pop()
        return read(watch, file)

    monkeypatch.setattr(StartWatch, "_read", fail_once)
    watched = Watched(tmp_path)
    watched.watch.start()
    eventually(lambda: watched.watch._watch is not None)
    watched.write("a")
    eventually(lambda: "out of range" in caplog.text)
    eventually(lambda: watched.watch._watch is not None)
    watched.write("b")
    assert watched.next() == ("b", 0)
    watched.watch.close()


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (LockTimeout(path="/sys/fs/resctrl", timeout=1.0, holders="it is held by process 7 (pqos)"), "WARNING"),
        (RuntimeError("a fault"), "ERROR"),
    ],
    ids=["lock", "fault"],
)
def test_only_a_fault_of_the_agents_own_is_logged_with_a_traceback(
    watched: Watched, caplog: pytest.LogCaptureFixture, error: Exception, level: str
) -> None:
    watched.fails = error
    watched.write("a")
    eventually(lambda: caplog.records)
    (record,) = caplog.records
    assert (record.levelname, bool(record.exc_info)) == (level, level == "ERROR")
    assert str(error) in record.getMessage()


def test_a_directory_that_comes_late_or_anew_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.observe.starting_vms.RETRY", 0.01)
    run_dir = tmp_path / "run"
    watched = Watched(run_dir)
    assert (watched.watch.is_watching, watched.watch.last_error) == (None, "")
    watched.watch.start()
    try:
        for _ in range(2):
            eventually(lambda: watched.watch.last_error)
            assert not watched.watch.is_watching
            assert watched.watch.last_error == f"{run_dir} can't be watched: No such file or directory"
            run_dir.mkdir()
            while watched.watch._watch is None:
                pass
            assert (watched.watch.is_watching, watched.watch.last_error) == (True, "")
            watched.write("a")
            assert watched.next() == ("a", 0)
            (run_dir / "a.xml").unlink()
            assert watched.next() == "a"
            run_dir.rmdir()
            while watched.watch._watch is not None:
                pass
    finally:
        watched.watch.close()


def test_an_end_that_the_kernel_did_not_tell_of_is_told_once_the_directory_is_watched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.observe.starting_vms.RETRY", 0.01)
    run_dir, other = tmp_path / "run", tmp_path / "other"
    run_dir.mkdir()
    other.mkdir()
    watched = Watched(run_dir)
    watched.watch.start()
    try:
        while (first := watched.watch._watch) is None:
            pass
        for name in ("gone", "stays"):
            watched.write(name)
            assert watched.next() == (name, 0)
        Watched(other).write("stays")
        run_dir.rename(tmp_path / "before")
        other.rename(run_dir)
        assert watched.next() == "gone"
        while watched.watch._watch in (None, first):
            pass
        watched.sync()
        (run_dir / "stays.xml").unlink()
        assert watched.next() == "stays"
    finally:
        watched.watch.close()


def test_an_end_that_comes_before_the_start_is_no_trouble(tmp_path: Path) -> None:
    StartWatch(str(tmp_path), lambda found: set(), lambda file: None).close()


def test_ends_of_which_the_kernel_lost_word_are_told_all_the_same(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.write("a")
    watched.write("b")
    assert {watched.next(), watched.next()} == {("a", 0), ("b", 0)}
    lost, take = list[FileEvent](), DirectoryWatch.wait

    def lose(self: DirectoryWatch) -> Sequence[FileEvent]:
        found = take(self)
        if lost or not any(event.name == "a.xml" for event in found):
            return found
        lost.extend(found)
        raise EventsLost

    monkeypatch.setattr(DirectoryWatch, "wait", lose)
    # The wait that is under way is none of these yet.
    watched.sync()
    (watched.run_dir / "a.xml").unlink()
    assert watched.next() == "a" and lost
    (watched.run_dir / "b.xml").unlink()
    assert watched.next() == "b"
    watched.sync()
