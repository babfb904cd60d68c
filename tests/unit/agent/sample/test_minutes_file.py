# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import stat
import sys
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.agent.sample.test_minutes import remembered
from vmqos.agent.sample import minutes_file
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES
from vmqos.agent.sample.minutes import DAY, MOST_VMS, STATISTICS, MinuteHistory, Minutes, Track
from vmqos.agent.sample.minutes_file import FORMAT, LONGEST, UnusableFile


def past() -> Minutes:
    return remembered({"a": 1, "b": 2}, {"a": 3}, {"a": 4}).copy()


def same(one: Minutes, other: Minutes) -> bool:
    """Numbers that are not there are equal, too."""
    rows = [{uuid: (track.rows.tobytes(), track.missed) for uuid, track in found.vms.items()} for found in (one, other)]
    return (one.series, one.times, rows[0]) == (other.series, other.times, rows[1])


@pytest.mark.parametrize("minutes", [past(), MinuteHistory(5).copy()], ids=["two VMs", "nothing"])
def test_what_is_written_is_read(tmp_path: Path, minutes: Minutes) -> None:
    path = tmp_path / "minutes"
    for _ in range(2):
        minutes_file.write(str(path), minutes)
    assert same(minutes_file.read(str(path)), minutes)
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "minutes"
    before = os.umask(0)
    try:
        minutes_file.write(str(path), past())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_that_was_cut_short_before_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "minutes"
    (tmp_path / "minutes.new").write_bytes(b"half")
    (tmp_path / "minutes.new").chmod(0o644)
    minutes_file.write(str(path), past())
    assert same(minutes_file.read(str(path)), past())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_file_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "minutes"
    minutes_file.write(str(path), past())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        minutes_file.write(str(path), MinuteHistory(5).copy())
    assert same(minutes_file.read(str(path)), past())
    assert list(tmp_path.iterdir()) == [path]


@given(position=st.integers(0), bit=st.integers(0, 7))
def test_one_bit_that_flips_is_found(tmp_path_factory: pytest.TempPathFactory, position: int, bit: int) -> None:
    path = tmp_path_factory.mktemp("flipped") / "minutes"
    minutes_file.write(str(path), past())
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(UnusableFile):
        minutes_file.read(str(path))


@given(length=st.integers(0))
def test_a_file_that_was_cut_is_found(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "minutes"
    minutes_file.write(str(path), past())
    content = path.read_bytes()
    path.write_bytes(content[: length % len(content)])
    with pytest.raises(UnusableFile):
        minutes_file.read(str(path))


def file_of(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    """A file with the right checksum."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = FORMAT + (len(text) if length is None else length).to_bytes(4, "big") + text + body
    return content + zlib.crc32(content).to_bytes(4, "big")


GOOD = {"byteorder": sys.byteorder, "series": list(SERIES), "minutes": 1, "vms": {}}


def test_a_file_is_as_the_tests_make_it(tmp_path: Path) -> None:
    path = tmp_path / "minutes"
    path.write_bytes(file_of(GOOD, (60).to_bytes(8, sys.byteorder)))
    assert list(minutes_file.read(str(path)).times) == [60]


@pytest.mark.parametrize(
    "content",
    [
        file_of(GOOD),
        file_of(GOOD, bytes(9)),
        file_of({**GOOD, "minutes": 10**9}, bytes(8)),
        file_of({**GOOD, "minutes": -1}),
        file_of({**GOOD, "minutes": None}, bytes(8)),
        file_of({**GOOD, "vms": {"a": 0}}, bytes(8)),
        file_of({**GOOD, "vms": 5}, bytes(8)),
        file_of({**GOOD, "vms": {"a": "b"}}, bytes(8 + 4 * 3 * len(SERIES))),
        file_of({**GOOD, "byteorder": "another"}, bytes(8)),
        file_of({**GOOD, "series": 7}, bytes(8)),
        file_of({}, bytes(8)),
        file_of(7),
        file_of(b"{"),
        file_of(b"\xff"),
        file_of(b"[" * 60_000),
        file_of(GOOD, bytes(8), length=1 << 31),
        file_of(GOOD, bytes(8), length=0),
        b"vmqos minutes 2\n" + bytes(100),
    ],
)
def test_a_file_that_another_program_wrote_is_not_used(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "minutes"
    path.write_bytes(content)
    with pytest.raises(UnusableFile):
        minutes_file.read(str(path))


def too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LONGEST + 1)


@pytest.mark.parametrize(
    "make", [too_large, os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd"), lambda path: None]
)
def test_what_is_no_file_of_a_fair_size_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "minutes"
    make(path)
    with pytest.raises((UnusableFile, OSError)):
        minutes_file.read(str(path))


def test_a_file_of_a_day_of_all_series_and_of_as_many_vms_as_are_remembered_is_not_too_long(tmp_path: Path) -> None:
    series, times = SERIES + EXECUTED + PACKAGES, array("q", range(0, 60 * DAY, 60))
    row = array("f", [1.0]) * (len(series) * len(STATISTICS) * DAY)

    def size(vms: int) -> int:
        path = tmp_path / "minutes"
        minutes_file.write(str(path), Minutes(series, times, {f"{number:036}": Track(row) for number in range(vms)}))
        assert len(minutes_file.read(str(path)).vms) == vms
        return path.stat().st_size

    assert size(0) + MOST_VMS * (size(1) - size(0)) <= LONGEST
