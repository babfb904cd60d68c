# SPDX-License-Identifier: Apache-2.0
"""The engine that every Python has, in a process of its own; ``tox -e fuzz`` itself begins with the other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import run, table
from tests.fuzz.__main__ import table as printed
from tests.fuzz.run import Outcome
from tests.fuzz.table import BY_NAME, CONTROL


def test_the_planted_defect_is_found_without_guidance(tmp_path: Path) -> None:
    for seconds in (3.0, 10.0, 60.0):
        # On a busy machine the process has hardly started by then.
        outcome = run.fuzz(CONTROL, seconds, folder=tmp_path / f"{seconds:.0f}", guided=False)
        if outcome.findings:
            break
    assert outcome.tried >= 500 and outcome.reached > 0
    (finding,) = outcome.findings
    assert finding.startswith("ZeroDivisionError at")


def test_a_parser_without_a_defect_yields_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "FINDINGS", tmp_path / "kept")
    # The start of the process is included; some inputs are tried in any case.
    outcome = run.fuzz(BY_NAME["cpu-spec"], 5.0, folder=tmp_path, guided=False)
    assert outcome.findings == ()
    assert outcome.tried > outcome.taken > 0
    assert outcome.corpus == len(BY_NAME["cpu-spec"].inputs())
    assert not (tmp_path / "kept").exists()


def test_a_process_that_dies_is_a_finding(tmp_path: Path) -> None:
    missing = table.Target("missing", "no text", "nowhere:parse")
    outcome = run.fuzz(missing, 1.0, folder=tmp_path, guided=False)
    assert outcome.tried == 0
    assert "ended with 1" in outcome.findings[0] and "KeyError" in outcome.findings[0]


def test_the_table_has_a_row_for_each_target_and_the_sums() -> None:
    rows = printed([Outcome(CONTROL, 12_345, 1234, 7, 3, ("a", "b")), Outcome(BY_NAME["stat"], 5, 0, 1, 1, ())], True)
    first, second, third, last = rows.splitlines()
    assert first.split() == ["target", "text", "executions", "taken", "edges", "corpus", "findings"]
    assert second.split()[-6:] == ["12", "345", "10", "%", "7", "3", "2"][-6:]
    assert third.startswith("stat")
    assert last.split() == ["all", "12", "350", "2"]
