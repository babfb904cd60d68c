# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest
from rich.text import Text

from tests.unit.cli.streams import Stream
from vmqos.cli.show import terminal
from vmqos.cli.show.terminal import Terminal


@pytest.mark.parametrize(
    ("stream", "environment", "no_color", "fancy"),
    [
        (Stream(), {"TERM": "xterm"}, False, True),
        (Stream(), {}, False, True),
        (Stream(), {"TERM": "dumb"}, False, False),
        (Stream(), {"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        (Stream(), {"TERM": "xterm", "NO_COLOR": ""}, False, True),
        (Stream(), {"TERM": "xterm"}, True, False),
        (Stream(encoding="ANSI_X3.4-1968"), {"TERM": "xterm"}, False, False),
        (Stream(is_terminal=False), {"TERM": "xterm"}, False, False),
        (Stream(is_terminal=False), {"FORCE_COLOR": "1"}, False, True),
        (Stream(is_terminal=False), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_only_a_willing_and_able_terminal_gets_colours(
    stream: Stream, environment: dict[str, str], no_color: bool, fancy: bool
) -> None:
    assert terminal.of_stream(stream, environment, no_color).fancy is fancy


def test_a_pipe_has_no_width_to_keep_to() -> None:
    assert not terminal.of_stream(Stream(is_terminal=False), {}).bounded
    assert terminal.of_stream(Stream(), {}).bounded


@pytest.mark.parametrize(("fancy", "escapes"), [(True, True), (False, False)])
def test_escape_codes_go_to_fancy_terminals_alone(fancy: bool, escapes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    terminal.show(Text("hello", style="bold red"), stream, Terminal(fancy=fancy))
    assert ("\x1b" in stream.getvalue()) is escapes


def test_forced_colour_is_no_excuse_for_a_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    terminal.show(Text("hello", style="bold red"), stream, Terminal(fancy=False))
    assert stream.getvalue() == "hello\n"
