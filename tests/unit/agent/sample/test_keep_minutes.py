# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.agent.sample.test_history import sample
from tests.unit.agent.sample.test_minutes import remembered, value
from tests.unit.eventually import eventually
from vmqos.agent.sample import minutes_file
from vmqos.agent.sample.keep_minutes import MinutesKeeper
from vmqos.agent.sample.minutes import DAY, MinuteHistory
from vmqos.agent.sample.piece import Stored


@contextmanager
def keeping(history: MinuteHistory, path: Path | str) -> Iterator[None]:
    keeper = MinutesKeeper(history, str(path))
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


def test_an_agent_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "minutes"
    first = MinuteHistory(5)
    with keeping(first, path):
        for second in (0.0, 60.0, 120.0):
            first.add(second, {"a": sample(second)})
    second = MinuteHistory(5)
    with keeping(second, path):
        eventually(lambda: second.count > 0)
        for moment in (600.0, 660.0):
            second.add(moment, {"a": sample(moment)})
    third = MinuteHistory(5)
    with keeping(third, path):
        eventually(lambda: third.count > 0)
    # The minute that ran when an agent ended is lost.
    assert list(third.copy().times) == [0, 60, 600]
    assert value(third.copy(), "a", "llc_occupancy", "mean") == [0, 60, 600]


def test_it_is_written_while_the_agent_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.sample.keep_minutes.INTERVAL", 0.02)
    path = tmp_path / "minutes"
    history = MinuteHistory(5)
    with keeping(history, path):
        history.add(0.0, {"a": sample(1)})
        history.add(60.0, {})
        eventually(path.exists)
        before = path.stat().st_ino
        history.add(120.0, {})
        eventually(lambda: len(minutes_file.read(str(path)).times) == 2)
        assert path.stat().st_ino != before


def test_nothing_new_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.sample.keep_minutes.INTERVAL", 0.01)
    path = tmp_path / "minutes"
    minutes_file.write(str(path), remembered({"a": 1}).packed())
    before = path.stat().st_ino
    history = MinuteHistory(5)
    with keeping(history, path):
        eventually(lambda: history.count > 0)
    assert path.stat().st_ino == before


def test_a_damaged_file_is_one_line_and_the_past_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "minutes"
    path.write_bytes(b"vmqos minutes 1\n and then something else")
    history = MinuteHistory(5)
    with keeping(history, path):
        eventually(lambda: bool(caplog.records))
        assert history.count == 0
        history.add(0.0, {"a": sample(1)})
        history.add(60.0, {})
    (line,) = caplog.messages
    assert line == f"the past in {path} ([telemetry] minutes_file) is not used: its checksum is wrong"
    assert list(minutes_file.read(str(path)).vms) == ["a"]


def test_a_directory_that_is_not_there_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vmqos.agent.sample.keep_minutes.INTERVAL", 0.01)
    path = tmp_path / "folder" / "minutes"
    history = MinuteHistory(5)
    with keeping(history, path):
        history.add(0.0, {"a": sample(1)})
        history.add(60.0, {})
        eventually(lambda: bool(caplog.records))
        path.parent.mkdir()
        eventually(path.exists)
    assert len(caplog.records) == 1
    assert str(path) in caplog.messages[0]


@pytest.mark.parametrize(("path", "capacity"), [("", 5), ("minutes", 0)])
def test_without_a_file_or_minutes_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, capacity: int
) -> None:
    monkeypatch.chdir(tmp_path)
    history = MinuteHistory(capacity)
    with keeping(history, path):
        history.add(0.0, {"a": sample(1)})
        history.add(60.0, {})
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_that_can_be_written_all_is_told_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vmqos.agent.sample.keep_minutes.INTERVAL", 0.01)
    history = MinuteHistory(DAY)
    with keeping(history, tmp_path / "folder" / "minutes"):
        for minute in range(301):
            history.add(60.0 * minute, {"a": sample(minute)})
        eventually(lambda: bool(caplog.records))
        pieces = history.packed().vms["a"].pieces
        assert pieces and all(isinstance(piece.packed, bytes) for piece in pieces)
        assert value(history.copy(), "a", "llc_occupancy", "mean") == list(range(300))
        (tmp_path / "folder").mkdir()
        eventually(lambda: all(isinstance(piece.packed, Stored) for piece in pieces))
        assert value(history.copy(), "a", "llc_occupancy", "mean") == list(range(300))
