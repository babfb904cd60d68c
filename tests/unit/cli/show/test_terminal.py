# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest
from rich.text import Text

from vmqos.cli.show import terminal
from vmqos.cli.show.terminal import Terminal


class Stream(io.StringIO):
    """A stream that says of itself what a test wants."""

    def __init__(self, screen: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._screen = screen
        self._encoding = encoding

    def isatty(self) -> bool:
        return self._screen

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


@pytest.mark.parametrize(
    ("stream", "environment", "no_color", "fancy"),
    [
        (Stream(True), {"TERM": "xterm"}, False, True),
        (Stream(True), {}, False, True),
        (Stream(True), {"TERM": "dumb"}, False, False),
        (Stream(True), {"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        (Stream(True), {"TERM": "xterm", "NO_COLOR": ""}, False, True),
        (Stream(True), {"TERM": "xterm"}, True, False),
        (Stream(True, "ANSI_X3.4-1968"), {"TERM": "xterm"}, False, False),
        (Stream(False), {"TERM": "xterm"}, False, False),
        (Stream(False), {"FORCE_COLOR": "1"}, False, True),
        (Stream(False), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_only_a_willing_and_able_terminal_gets_colours(
    stream: Stream, environment: dict[str, str], no_color: bool, fancy: bool
) -> None:
    assert terminal.of_stream(stream, environment, no_color).fancy is fancy


def test_a_pipe_has_no_width_to_keep_to() -> None:
    assert not terminal.of_stream(Stream(False), {}).bounded
    assert terminal.of_stream(Stream(True), {}).bounded


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
