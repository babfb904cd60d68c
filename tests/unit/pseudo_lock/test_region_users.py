# SPDX-License-Identifier: Apache-2.0
"""Who has a device open or mapped: real processes, and device nodes that the tests make."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.lab.ready_programs import Start, starting
from vmqos.pseudo_lock import region_users

NULL = os.stat("/dev/null").st_rdev
UUID = "0c4b2a3e-5d53-4d2a-9a3c-6c0f5c3f1e11"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no CPU for a second is none that never answers."""
    monkeypatch.setattr(region_users, "PATIENCE", 60.0)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program that does this, and then waits; gives its PID."""
    with starting() as start_program:
        yield lambda program, *arguments: start_program(f"{program}\nprint('ready', flush=True)\ninput()", *arguments)


@pytest.fixture
def null(tmp_path: Path) -> Path:
    """The path /dev/null, and beside it another file whose path ends alike."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "null").write_bytes(b"x" * 4096)
    return tmp_path / "dev" / "null"


def pids(found: list[region_users.User]) -> list[int]:
    return [user.pid for user in found]


def test_a_process_that_has_the_device_open_uses_it(start: Start) -> None:
    pid = start("file = open('/dev/null')", "-uuid", UUID)
    (found,) = (user for user in region_users.users("/dev/null") if user.pid == pid)
    assert found.vm == UUID
    assert found.doubt == ""


def test_a_file_whose_path_ends_alike_is_no_device(start: Start, null: Path) -> None:
    opens = start(f"file = open({str(null)!r})")
    maps = start(f"import mmap\nfile = open({str(null)!r}, 'r+b')\nkept = mmap.mmap(file.fileno(), 4096)\nfile.close()")
    assert not {opens, maps} & set(pids(region_users.users("/dev/null")))


def test_a_file_that_is_mapped_and_closed_is_compared_by_its_number(
    start: Start, null: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no device of this host that every test may map: a file stands for it."""
    maps = start(f"import mmap\nfile = open({str(null)!r}, 'r+b')\nkept = mmap.mmap(file.fileno(), 4096)\nfile.close()")
    assert [os.path.realpath(path) for path in region_users._mapped(f"/proc/{maps}", b"/dev/null")] == [str(null)]


def test_a_device_that_is_gone_has_no_users(tmp_path: Path) -> None:
    assert region_users.users(str(tmp_path / "gone")) == []


@pytest.mark.parametrize(
    "arguments", [["-uuid"], ["-uuid", "\x1b[2J"], ["-uuid", UUID.upper()], ["-uuid", UUID + "0"], ["uuid", UUID]]
)
def test_what_is_no_uuid_names_no_vm(start: Start, arguments: list[str]) -> None:
    pid = start("file = open('/dev/null')", *arguments)
    assert [user.vm for user in region_users.users("/dev/null") if user.pid == pid] == [""]


def test_a_process_of_too_many_files_is_told_to_be_in_doubt(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_users, "MOST_FILES", 10)
    pid = start("files = [open('/') if False else __import__('os').open('/', 0) for _ in range(20)]")
    monkeypatch.setattr(region_users, "_is", lambda path, number: False)
    (found,) = (user for user in region_users.users("/dev/null") if user.pid == pid)
    assert str(found).endswith("or not: it has more than 10 files open")


def test_a_process_whose_maps_can_not_be_read_is_told_to_be_in_doubt(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start("")
    monkeypatch.setattr(region_users, "_is", lambda path, number: False)
    monkeypatch.setattr(region_users, "LONGEST_MAPS", 100)
    (found,) = (user for user in region_users.users("/dev/null") if user.pid == pid)
    assert found.doubt == "it maps too many files"


def test_what_does_not_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_users, "PATIENCE", 0.1)
    began, goes_on = time.monotonic(), threading.Event()

    def never() -> int:
        goes_on.wait(120)
        return 1

    with pytest.raises(region_users._CantTell, match=r"within 0\.1 s"):
        region_users._within_patience(never)
    assert time.monotonic() - began < 60
    goes_on.set()


def test_only_those_who_may_open_a_private_device_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t1\t2\t3\t4\n")
    private = os.stat_result((stat.S_IFCHR | 0o600, 0, 0, 1, 1001, 0, 0, 0, 0, 0))
    roots = os.stat_result((stat.S_IFCHR | 0o600, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    everybodys = os.stat_result((stat.S_IFCHR | 0o666, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    assert [region_users._may_open(str(tmp_path), device) for device in (private, roots, everybodys)] == [
        True,
        False,
        True,
    ]


def test_a_name_that_is_no_text_is_told(start: Start) -> None:
    pid = start("open('/proc/self/comm', 'wb').write(b'\\xff\\x1b[2J\\n\\r')\nfile = open('/dev/null')")
    assert [user.command for user in region_users.users("/dev/null") if user.pid == pid] == ["\\xff\x1b[2J\n\r"]
