# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import os
import resource
from collections.abc import Iterator

import pytest

from vmqos.cli.live.screen import Screen, parse_keys
from vmqos.cli.show.terminal import Terminal


@pytest.fixture
def many_open() -> Iterator[int]:
    """More files are open than ``select`` can tell of; the number of the last one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] < 1024:
            opened.append(os.dup(opened[0]))
        yield opened[-1]
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_screen_waits_also_where_more_than_a_thousand_files_are_open(
    many_open: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    screen = Screen(io.StringIO(), Terminal(False, 80))
    with screen.open():
        screen.wake()
        assert screen.wait() == []


@pytest.mark.parametrize(
    ("raw", "keys"),
    [
        (b"q", ["q"]),
        (b"otR?", ["o", "t", "R", "?"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", ["up", "down", "up", "down"]),
        (b"\x1b[5~\x1b[6~", ["page up", "page down"]),
        (b"\x1b[H\x1b[F\x1bOH\x1bOF\x1b[1~\x1b[4~", ["home", "end", "home", "end", "home", "end"]),
        (b" ", ["space"]),
        (b"\r\n", ["enter", "enter"]),
        (b"\x7f\x08\x15", ["backspace", "backspace", "clear"]),
        (b"\x1b", ["escape"]),
        (b"q\x1b", ["q", "escape"]),
        ("é数".encode(), ["é", "数"]),
        (b"", []),
    ],
)
def test_keys_have_names(raw: bytes, keys: list[str]) -> None:
    assert parse_keys(raw) == keys


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1b[",
        b"\x1b[1;5C",
        b"\x1b[15~",
        b"\x1bOP",
        b"\x1b[200~",
        b"\xc3",
        b"\xff\xfe",
        "\u202e".encode(),
        b"\x00\x07\t",
        b"\x1b[<0;1;1M",
    ],
)
def test_what_is_no_key_of_ours_is_passed_over_and_never_taken_for_letters(raw: bytes) -> None:
    assert parse_keys(raw) == []
    assert parse_keys(raw + b"\x1b[A") == ["up"]


def test_a_sequence_does_not_swallow_the_key_behind_it() -> None:
    assert parse_keys(b"\x1b[15~q") == ["q"]
    assert parse_keys(b"\x1bOPq") == ["q"]
    assert parse_keys(b"\x1b\x1b[A") == ["up"]
    assert parse_keys(b"\xffq") == ["q"]
