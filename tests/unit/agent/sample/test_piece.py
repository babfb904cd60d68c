# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import os
import random
import struct
import threading
import zlib
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmqos.agent.sample.history import EXECUTED, SERIES
from vmqos.agent.sample.piece import HOUR, Piece, PieceFile, Stored, content_of, length_of, pack, unpack, width
from vmqos.agent.serve.counters import shown

ONE = ("total",)
FLOATS = st.floats(width=32) | st.floats(0, 1000, width=32)


@given(st.lists(st.tuples(FLOATS, FLOATS, FLOATS), min_size=1, max_size=70))
@example([(999.9999, 1000.0, 1000.0625)])
@example([(0.0004, 0.0005, 0.0015)])
@example([(-0.0, -1e-40, 1e-40)])
@example([(math.inf, -math.inf, math.nan)])
@example([(1000.0, 1023.99, 1e38)])
def test_a_number_that_was_packed_is_the_same_in_thousandths_or_in_four_digits(
    rows: list[tuple[float, float, float]],
) -> None:
    before = array("f", [number for row in rows for number in row])
    piece = pack(ONE, before)
    after = unpack(piece)
    assert piece.minutes == len(rows)
    for was, is_now in zip(before, after, strict=True):
        if 1000 <= was < 1e38:
            assert abs(is_now - was) <= was / 8192
        else:
            assert shown(is_now) == shown(was)


def test_rounding_keeps_the_order_of_least_mean_and_greatest() -> None:
    chance = random.Random(1)
    for _ in range(1000):
        least = chance.uniform(1000, 1010)
        before = [least, least * (1 + chance.random() / 4096), least * (1 + 1 / 2048)]
        after = unpack(pack(ONE, array("f", before)))
        assert list(after) == sorted(after)


def test_numbers_below_0_and_those_that_no_counter_has_keep_each_bit() -> None:
    before = array("f", [3.4e38, -0.1, -12345.6])
    assert unpack(pack(ONE, before)) == before


def noisy(chance: random.Random) -> array[float]:
    """An hour of a VM of which each series is another number in each look."""
    rows = array("f")
    for _ in range(HOUR):
        columns = []
        for series in SERIES + EXECUTED:
            level = 1.5 if series == "instructions_per_cycle" else 3e8
            looks = [level * chance.lognormvariate(0, 0.2) for _ in range(60)]
            columns.append((min(looks), sum(looks) / len(looks), max(looks)))
        for statistic in zip(*columns, strict=True):
            rows.extend(statistic)
    return rows


def test_the_numbers_of_an_hour_of_noise_take_four_tenths_less_and_those_that_do_not_change_nearly_nothing() -> None:
    series = SERIES + EXECUTED
    rows = noisy(random.Random(1))
    assert len(pack(series, rows).packed) < 0.6 * 4 * len(rows)
    calm = rows[: width(series)] * HOUR
    assert len(pack(series, calm).packed) < 0.1 * 4 * len(calm)


GOOD = pack(ONE, array("f", [1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    "piece",
    [
        Piece(ONE, 2, GOOD.packed),
        Piece(("total", "local"), 1, GOOD.packed),
        Piece(ONE, 1, GOOD.packed[:-1]),
        Piece(ONE, 1, GOOD.packed + b"\0"),
        Piece(ONE, 1, b"none"),
        Piece(ONE, 1, zlib.compress(bytes(1 << 20))),
        Piece(ONE, 1, zlib.compress(struct.pack("2f", 1, 2))),
    ],
)
def test_what_is_no_piece_is_refused(piece: Piece) -> None:
    with pytest.raises(ValueError):
        unpack(piece)


def in_file(tmp_path: Path, content: bytes, length: int | None = None) -> Piece:
    """The good piece, of which a file has these bytes."""
    path = tmp_path / "pieces"
    path.write_bytes(b"before" + content)
    file = PieceFile(os.open(path, os.O_RDONLY))
    return Piece(ONE, 1, Stored(file, len(b"before"), len(content) if length is None else length))


def test_a_piece_is_read_from_its_file_though_that_has_lost_its_name(tmp_path: Path) -> None:
    piece = in_file(tmp_path, GOOD.packed + b"behind", len(GOOD.packed))
    (tmp_path / "pieces").unlink()
    assert unpack(piece) == unpack(GOOD)
    assert (content_of(piece), length_of(piece)) == (GOOD.packed, length_of(GOOD))


@pytest.mark.parametrize("content", [b"", GOOD.packed[:-1], bytes(len(GOOD.packed))])
def test_what_is_damaged_in_a_file_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(in_file(tmp_path, content, len(GOOD.packed)))


@given(bit=st.integers(0, 8 * len(GOOD.packed) - 1))
def test_one_bit_that_flips_in_a_file_gives_no_other_numbers(bit: int) -> None:
    content = bytearray(GOOD.packed)
    content[bit // 8] ^= 1 << bit % 8
    with suppress(ValueError):
        assert unpack(Piece(ONE, 1, bytes(content))) == unpack(GOOD)


def test_a_file_is_closed_with_its_last_piece(tmp_path: Path) -> None:
    piece = in_file(tmp_path, GOOD.packed)
    descriptor = piece.packed.file.descriptor
    piece.packed = GOOD.packed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_disk_that_hangs_holds_up_one_thread_and_is_told_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece, hangs, goes_on, read = in_file(tmp_path, GOOD.packed), threading.Event(), threading.Event(), os.pread

    def hanging(*arguments: int) -> bytes:
        hangs.set()
        assert goes_on.wait(60)
        return read(*arguments)

    monkeypatch.setattr("vmqos.agent.sample.piece.PATIENCE", 0.01)
    monkeypatch.setattr(os, "pread", hanging)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(unpack, piece)
        try:
            assert hangs.wait(60)
            with pytest.raises(TimeoutError, match="the disk does not answer"):
                unpack(piece)
        finally:
            goes_on.set()
        assert first.result(60) == unpack(piece) == unpack(GOOD)
