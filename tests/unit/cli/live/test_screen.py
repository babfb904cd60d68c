# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.cli.live.screen import parse_keys


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
