# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import time

import pytest

from tests.unit.cli.streams import Stream
from vmqos.cli.show.progress_bar import PhaseBar, for_terminals

STEPS = (("first", 0.0), ("first", 1.0), ("[red]second", 1.5), ("[red]second", 2.0))


def test_without_a_terminal_each_phase_is_a_line() -> None:
    stream = io.StringIO()
    with PhaseBar(stream, 2.0) as bar:
        for phase, done in STEPS:
            bar.show(phase, done)
    assert stream.getvalue() == "first ...\n[red]second ...\n"


def test_in_a_terminal_each_phase_is_shown_as_it_is_called_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Stream()
    with PhaseBar(stream, 2.0) as bar:
        for phase, done in STEPS:
            bar.show(phase, done)
    drawn = stream.getvalue()
    assert "first ...\n" not in drawn
    assert "[red]second" in drawn and "100%" in drawn
    assert drawn.endswith("\x1b[2K"), "the line of the bar is not taken away"


def test_the_time_left_is_told_where_it_is_known_and_never_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Stream()
    with PhaseBar(stream, 18.0) as bar:
        bar.show("before", 6.0, 12.0)
        time.sleep(0.01)
        bar.show("during", 6.0001, 11.9999)
    assert "12 s left" in stream.getvalue() and ":" not in stream.getvalue()


def test_without_a_terminal_a_bar_shows_nothing_at_all() -> None:
    stream = io.StringIO()
    with for_terminals(stream) as bar:
        assert list(bar.track([1, 2], description="servers")) == [1, 2]
    assert stream.getvalue() == ""
