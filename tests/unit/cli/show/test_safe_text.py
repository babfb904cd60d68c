# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.unit.local_api import examples
from vmqos.cli.show.safe_text import display_name, distinct_names, neutralise, pad, shorten, squeeze


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("web-1", "web-1"),
        ("größe 数据库", "größe 数据库"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("two\nlines\r\t", r"two\nlines\r\t"),
        ("\x9b31mred", r"\x9b31mred"),
        ("evil\u202egnp.exe", r"evil\u202egnp.exe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("lone \ud800 surrogate", r"lone \ud800 surrogate"),
        ("private \ue000", r"private \ue000"),
    ],
)
def test_characters_that_steer_a_terminal_are_spelled_out(hostile: str, harmless: str) -> None:
    assert neutralise(hostile) == harmless


@given(st.text(st.characters()))
def test_no_text_keeps_a_control_character(text: str) -> None:
    assert not {unicodedata.category(character) for character in neutralise(text)} & {"Cc", "Cf", "Cs"}


@given(st.text(), st.integers(0, 40), st.sampled_from(["…", "..", ""]))
def test_a_shortened_text_is_never_too_wide(text: str, width: int, ellipsis: str) -> None:
    assert cell_len(shorten(text, width, ellipsis)) <= width


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [("web", 3, "web"), ("frontend", 5, "fron…"), ("数据库主机", 5, "数据…"), ("数据", 4, "数据"), ("ab", 0, "")],
)
def test_texts_are_shortened_by_columns_and_not_by_characters(text: str, width: int, short: str) -> None:
    assert shorten(text, width, "…") == short


@given(st.text(), st.integers(0, 40), st.sampled_from(["…", "..", ""]))
def test_a_squeezed_text_is_never_too_wide(text: str, width: int, ellipsis: str) -> None:
    assert cell_len(squeeze(text, width, ellipsis)) <= width


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("web", 3, "web"),
        ("frontend-17", 7, "fro…-17"),
        ("web (4f2c1a9e)", 12, "web (4…1a9e)"),
        ("数据库主机", 7, "数据…机"),
        ("abc", 1, "…"),
        ("abc", 2, "a…"),
    ],
)
def test_a_squeezed_name_keeps_its_beginning_and_its_end(text: str, width: int, short: str) -> None:
    assert squeeze(text, width, "…") == short


def test_padding_counts_columns() -> None:
    assert pad("数据", 6) == "数据  "


def test_a_vm_is_called_by_novas_name_and_else_by_libvirts() -> None:
    assert display_name(examples.vm(examples.WEB, "web\x07")) == r"web\x07"
    assert display_name(examples.vm(examples.WEB, "")) == "instance-4f2c1a9e"


def test_vms_of_one_name_are_told_apart_by_their_uuid() -> None:
    vms = [examples.vm(examples.WEB, "web"), examples.vm(examples.DB, "web"), examples.vm(examples.PLAIN, "plain")]
    assert list(distinct_names(vms).values()) == ["web (4f2c1a9e)", "web (7d01e4c2)", "plain"]


def test_uuids_that_begin_alike_are_told_until_they_differ() -> None:
    first, second = "4f2c1a9e-0f0b-4a55-9c1e-2b6d7a90c3aa", "4f2c1a9e-0f0b-4a56-9c1e-2b6d7a90c3aa"
    vms = [{"uuid": uuid, "name": "web", "instance_name": ""} for uuid in (first, second)]
    assert list(distinct_names(vms).values()) == [
        "web (4f2c1a9e-0f0b-4a55)",
        "web (4f2c1a9e-0f0b-4a56)",
    ]
