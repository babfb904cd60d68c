# SPDX-License-Identifier: Apache-2.0
"""The judge of an input, with parsers that do wrong."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from tests.fuzz import trial
from tests.fuzz.trial import TooMuchMemory, TooSlow, Trials, accepts
from vmqos.resctrl import schemata


def endless(data: bytes) -> bool:
    while True:
        with contextlib.suppress(Exception):
            bytes(1000)


def greedy(data: bytes) -> bool:
    return len(bytes(1) * (trial.MOST_MEMORY * 8)) > 0


def test_an_input_is_taken_or_refused() -> None:
    assert accepts(lambda data: data == b"a", b"a") is True
    assert accepts(lambda data: data == b"a", b"b") is False


def test_a_parser_that_does_not_end_is_stopped_although_it_catches_every_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "LONGEST", 0.2)
    with pytest.raises(TooSlow):
        accepts(endless, b"")
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_parser_that_takes_much_memory_for_little_input_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long this machine takes for so much memory.
    monkeypatch.setattr(trial, "LONGEST", 60.0)
    # Another test may have had this process take more already: the most that it ever had is forgotten (proc(5)).
    Path("/proc/self/clear_refs").write_text("5")
    with pytest.raises(TooMuchMemory, match="1 bytes of input"):
        accepts(greedy, b"x")


def test_one_input_of_each_finding_is_kept_with_its_traceback(tmp_path: Path) -> None:
    def parse(data: bytes) -> bool:
        if data == b"index":
            return bool(data[99])
        return bool(schemata.parse(data))  # type: ignore[arg-type]

    told: list[str] = []
    trials = Trials(parse, tmp_path, told.append)
    for data in (b"first", b"second", b"index", b"index"):
        trials(data)
    assert (trials.tried, trials.taken) == (4, 0)
    assert len(told) == 2
    assert told[0].startswith("finding: TypeError at") and "schemata.py" in told[0]
    assert {path.read_bytes() for path in tmp_path.iterdir() if not path.suffix} == {b"first", b"index"}
    assert sum("Traceback" in path.read_text() for path in tmp_path.glob("*.txt")) == 2
