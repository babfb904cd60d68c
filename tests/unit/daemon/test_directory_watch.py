# SPDX-License-Identifier: Apache-2.0
"""Word of the files in a directory, by the kernel's own inotify."""

from __future__ import annotations

import contextlib
import os
import resource
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.daemon.directory_watch import DirectoryWatch, EventsLost, FileEvent, parse

OVERFLOW = 0x4000


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[DirectoryWatch]:
    made = DirectoryWatch(str(tmp_path))
    yield made
    made.close()


def put(directory: Path, name: str) -> None:
    """Write a file as libvirt does: under another name first."""
    (directory / "new").write_text("x")
    (directory / "new").rename(directory / name)


def test_what_is_put_there_and_removed_is_told_in_order(watch: DirectoryWatch, tmp_path: Path) -> None:
    put(tmp_path, "a.xml")
    put(tmp_path, "b.xml")
    (tmp_path / "a.xml").unlink()
    assert watch.wait() == [FileEvent("a.xml", False), FileEvent("b.xml", False), FileEvent("a.xml", True)]


def test_a_file_that_is_only_written_to_is_not_told(watch: DirectoryWatch, tmp_path: Path) -> None:
    (tmp_path / "a.pid").write_text("1")
    put(tmp_path, "b.xml")
    assert watch.wait() == [FileEvent("b.xml", False)]


def test_a_wait_can_be_ended(watch: DirectoryWatch) -> None:
    timer = threading.Timer(0.05, watch.wake)
    timer.start()
    assert watch.wait() == []
    timer.join()


def test_a_watch_works_where_more_files_are_open_than_select_takes(tmp_path: Path) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as leaving:
        leaving.callback(resource.setrlimit, resource.RLIMIT_NOFILE, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most[1]), most[1]))
        # As the agent has them once it keeps the counters of some 170 VMs open.
        for _ in range(1024):
            leaving.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        made = DirectoryWatch(str(tmp_path))
        leaving.callback(made.close)
        put(tmp_path, "a.xml")
        assert made.wait() == [FileEvent("a.xml", False)]
        made.wake()
        assert made.wait() == []


def test_the_end_of_the_directory_is_told(watch: DirectoryWatch, tmp_path: Path) -> None:
    tmp_path.rmdir()
    with pytest.raises(EventsLost):
        watch.wait()


def test_a_directory_that_is_not_there_or_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("missing", "file"):
        with pytest.raises(OSError):
            DirectoryWatch(str(tmp_path / name))


def test_lost_events_are_told() -> None:
    with pytest.raises(EventsLost):
        parse(struct.pack("iIII", -1, OVERFLOW, 0, 0))


@given(st.lists(st.tuples(st.text("ab\xe4.", min_size=1, max_size=40), st.booleans())))
def test_names_of_any_length_are_told(events: list[tuple[str, bool]]) -> None:
    data = b""
    for name, is_gone in events:
        padded = name.encode() + b"\0" * (16 - len(name.encode()) % 16)
        data += struct.pack("iIII", 1, 0x200 if is_gone else 0x80, 0, len(padded)) + padded
    assert parse(data) == [FileEvent(*event) for event in events]
