# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import random
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

from tests.unit.agent.sample.test_history import sample
from tests.unit.agent.sample.test_minutes import remembered
from vmqos.agent.sample import minutes_file
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES
from vmqos.agent.sample.minutes import DAY, MOST_VMS, MinuteHistory, PackedMinutes, PackedTrack
from vmqos.agent.sample.minutes_file import FIRST_FORMAT, FORMAT, LONGEST, LONGEST_HEADER, UnusableFile
from vmqos.agent.sample.piece import HOUR, Piece, Stored, content_of, pack, width


def past() -> PackedMinutes:
    return remembered({"a": 1, "b": 2}, {"a": 3}, {"a": 4}).packed()


def with_pieces() -> PackedMinutes:
    """Five hours of two VMs; in the last ones they have further series."""
    made = MinuteHistory(DAY)
    for minute in range(301):
        if minute == 100:
            made.widen(PACKAGES)
        uuids = "ab" if minute < 200 else "a"
        made.add(60.0 * minute, {uuid: sample(minute) for uuid in uuids})
    return made.packed()


def same(one: PackedMinutes, other: PackedMinutes) -> bool:
    """Numbers that are not there are equal, too; and it makes no difference where the pieces are."""
    tracks = [
        {
            uuid: (
                [(piece.series, piece.minutes, content_of(piece)) for piece in track.pieces],
                track.rows.tobytes(),
                track.missed,
            )
            for uuid, track in found.vms.items()
        }
        for found in (one, other)
    ]
    return (one.series, one.times, tracks[0]) == (other.series, other.times, tracks[1])


@pytest.mark.parametrize(
    "minutes", [past(), MinuteHistory(5).packed(), with_pieces()], ids=["two VMs", "nothing", "pieces"]
)
def test_what_is_written_is_read(tmp_path: Path, minutes: PackedMinutes) -> None:
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
        minutes_file.write(str(path), MinuteHistory(5).packed())
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


def file_of(header: Any, body: bytes = b"", length: int | None = None, first: bytes = FORMAT) -> bytes:
    """A file with the right checksum."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = first + (len(text) if length is None else length).to_bytes(4, "big") + text + body
    return content + zlib.crc32(content).to_bytes(4, "big")


def file_of_first(header: Any, body: bytes = b"") -> bytes:
    """A file as the agents before wrote it."""
    return file_of(header, body, first=FIRST_FORMAT)


ROW = 4 * width(SERIES)
GOOD: dict[str, Any] = {"byteorder": sys.byteorder, "series": [list(SERIES)], "minutes": 1, "vms": {}}
GOOD_FIRST = {**GOOD, "series": list(SERIES)}
TIME = (60).to_bytes(8, sys.byteorder)
PIECE = pack(SERIES, array("f", [1.0]) * width(SERIES))


def track(missed: Any = 0, rows: Any = 0, pieces: Any = ()) -> dict[str, Any]:
    return {**GOOD, "vms": {"a": {"missed": missed, "rows": rows, "pieces": pieces}}}


@pytest.mark.parametrize(
    "content",
    [
        file_of(GOOD, TIME),
        file_of(track(rows=1), TIME + bytes(ROW)),
        file_of(track(pieces=[(0, 1, len(PIECE.packed))]), TIME + PIECE.packed),
        file_of_first(GOOD_FIRST, TIME),
        file_of_first({**GOOD_FIRST, "vms": {"a": 0}}, TIME + bytes(ROW)),
    ],
)
def test_a_file_is_as_the_tests_make_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "minutes"
    path.write_bytes(content)
    assert list(minutes_file.read(str(path)).times) == [60]


def test_a_file_of_an_earlier_agent_is_read(tmp_path: Path) -> None:
    path, nothing = tmp_path / "minutes", [float("nan")] * width(SERIES)
    count = 5 * HOUR
    stays = [float(minute) for minute in range(count) for _ in range(width(SERIES))]
    gone = stays[: -7 * width(SERIES)] + nothing * 7
    late = nothing * 100 + stays[100 * width(SERIES) :]
    body = array("q", range(0, 60 * count, 60)).tobytes() + array("f", stays + gone + late).tobytes()
    header = {**GOOD_FIRST, "minutes": count, "vms": {"stays": 0, "gone": 7, "late": 0}}
    path.write_bytes(file_of_first(header, body))
    history = MinuteHistory(DAY)
    history.restore(minutes_file.read(str(path)))
    found = history.copy()
    assert list(found.times) == list(range(0, 60 * count, 60))
    assert {uuid: track.missed for uuid, track in found.vms.items()} == header["vms"]
    for uuid, numbers in {"stays": stays, "gone": gone, "late": late}.items():
        assert list(map(str, found.vms[uuid].rows)) == list(map(str, numbers))
    assert all(track.pieces for track in history.packed().vms.values())


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
        file_of(track(missed="b", rows=1), TIME + bytes(ROW)),
        file_of(track(missed=-1, rows=1), TIME + bytes(ROW)),
        file_of(track(missed=2, rows=1), TIME + bytes(ROW)),
        file_of(track(rows=2), TIME + bytes(ROW)),
        file_of(track(rows=-1), TIME),
        file_of(track(pieces=[(1, 1, len(PIECE.packed))]), TIME + PIECE.packed),
        file_of(track(pieces=[(0, 0, 0)]), TIME),
        file_of(track(pieces=[(0, 1 << 40, len(PIECE.packed))]), TIME + PIECE.packed),
        file_of(track(pieces=[(0, 1, len(PIECE.packed) + 1)]), TIME + PIECE.packed),
        file_of(track(pieces=[(0, 1)]), TIME),
        file_of({**GOOD, "byteorder": "another"}, bytes(8)),
        file_of({**GOOD, "series": 7}, bytes(8)),
        file_of({**GOOD, "series": []}, bytes(8)),
        file_of({}, bytes(8)),
        file_of(7),
        file_of(b"{"),
        file_of(b"\xff"),
        file_of(b"[" * 60_000),
        file_of(GOOD, bytes(8), length=1 << 31),
        file_of(GOOD, bytes(8), length=0),
        file_of_first(GOOD_FIRST),
        file_of_first(GOOD_FIRST, bytes(9)),
        file_of_first({**GOOD_FIRST, "vms": {"a": 0}}, bytes(8)),
        file_of_first({**GOOD_FIRST, "vms": {"a": "b"}}, bytes(8 + ROW)),
        file_of_first({**GOOD_FIRST, "vms": {"a": 2}}, bytes(8 + ROW)),
        b"vmqos minutes 3\n" + bytes(100),
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


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """An agent that runs as root could put its file in the place of /dev/null."""
    path = tmp_path / "minutes"
    os.mkfifo(path)
    with pytest.raises(OSError, match="it is no regular file"):
        minutes_file.write(str(path), past())
    assert path.is_fifo() and os.listdir(tmp_path) == ["minutes"]


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
    # Random bytes, of numbers below 0, are what zlib makes least of.
    chance = random.Random(1)
    bits = array("I", [1 << 31 | chance.getrandbits(31) for _ in range(width(series) * HOUR)])
    rows = array("f", bits.tobytes())
    pieces = [pack(series, rows)] * (DAY // HOUR)
    assert len(pieces[0].packed) > 0.95 * 4 * len(rows)
    del rows[-width(series) :]

    def size(vms: int) -> tuple[int, int]:
        path = tmp_path / "minutes"
        tracks = {f"{number:036}": PackedTrack(pieces, rows) for number in range(vms)}
        minutes_file.write(str(path), PackedMinutes(series, times, tracks))
        assert len(minutes_file.read(str(path)).vms) == vms
        content = path.read_bytes()
        return len(content), int.from_bytes(content[len(FORMAT) : len(FORMAT) + 4], "big")

    (without, _), (of_one, header), (_, of_two) = size(0), size(1), size(2)
    assert without + MOST_VMS * (of_one - without) <= LONGEST
    assert header + MOST_VMS * (of_two - header) <= LONGEST_HEADER / 2


def pieces_of(minutes: PackedMinutes) -> list[Piece]:
    return [piece for track in minutes.vms.values() for piece in track.pieces]


def test_pieces_are_in_the_file_alone_once_it_is_written(tmp_path: Path) -> None:
    path, minutes = tmp_path / "minutes", with_pieces()
    before = [content_of(piece) for piece in pieces_of(minutes)]
    assert all(isinstance(piece.packed, bytes) for piece in pieces_of(minutes))
    for _ in range(2):
        minutes_file.write(str(path), minutes)
        assert all(isinstance(piece.packed, Stored) for piece in pieces_of(minutes))
        assert [content_of(piece) for piece in pieces_of(minutes)] == before
        assert all(isinstance(piece.packed, Stored) for piece in pieces_of(minutes_file.read(str(path))))


def test_a_file_that_is_replaced_is_closed(tmp_path: Path) -> None:
    path, minutes = tmp_path / "minutes", with_pieces()
    minutes_file.write(str(path), minutes)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        minutes_file.write(str(path), minutes)
    assert len(os.listdir("/proc/self/fd")) <= before, "what a test before this one left open may be closed meanwhile"


def test_pieces_of_which_the_write_failed_stay_where_they_are(tmp_path: Path) -> None:
    minutes = with_pieces()
    with pytest.raises(FileNotFoundError):
        minutes_file.write(str(tmp_path / "folder" / "minutes"), minutes)
    assert all(isinstance(piece.packed, bytes) for piece in pieces_of(minutes))
    assert same(minutes, with_pieces())


def test_a_piece_that_the_last_file_has_no_more_is_missing_in_the_next_one_and_the_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, minutes = tmp_path / "minutes", with_pieces()
    minutes_file.write(str(path), minutes)
    bad, read = minutes.vms["a"].pieces[1], os.pread

    def failing(descriptor: int, length: int, begin: int) -> bytes:
        if begin == bad.packed.begin:
            raise OSError(5, "Input/output error")
        return read(descriptor, length, begin)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing)
        minutes_file.write(str(path), minutes)
    found, whole = minutes_file.read(str(path)), with_pieces()
    assert content_of(found.vms["a"].pieces[1]) == bytes(len(content_of(whole.vms["a"].pieces[1])))
    for piece in (bad, found.vms["a"].pieces[1]):
        piece.packed = whole.vms["a"].pieces[1].packed
    assert same(found, whole) and same(minutes, whole)


def test_a_piece_that_is_damaged_is_a_gap_that_is_told_and_all_else_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, history = tmp_path / "minutes", MinuteHistory(DAY)
    history.restore(with_pieces())
    whole = history.copy()
    minutes_file.write(str(path), history.packed())
    place = history.packed().vms["a"].pieces[1].packed
    with path.open("r+b") as file:
        file.seek(place.begin + place.length // 2)
        file.write(b"damaged")
    for _ in range(2):
        found = history.copy()
        assert list(found.times) == list(whole.times)
        assert found.vms["b"].rows.tobytes() == whole.vms["b"].rows.tobytes()
        rows = list(map(str, found.vms["a"].rows))
        first, pieces = width(found.series), history.packed().vms["a"].pieces
        begin, end = pieces[0].minutes * first, (pieces[0].minutes + pieces[1].minutes) * first
        assert set(rows[begin:end]) == {"nan"}
        assert rows[:begin] + rows[end:] == [
            str(number) for at, number in enumerate(whole.vms["a"].rows) if not begin <= at < end
        ]
        # The next file has the same gap, and no other.
        minutes_file.write(str(path), history.packed())
        history = MinuteHistory(DAY)
        history.restore(minutes_file.read(str(path)))
    text = (
        "minutes of VM a are missing, for their file ([telemetry] minutes_file) is damaged: a piece has another length"
    )
    assert caplog.messages == [text] * 2
