# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.streams import Stream
from vmqos.host import reset


class Planned:
    """A reset that has something to do."""

    is_empty = False

    def describe(self) -> list[str]:
        return ["a step"]


def test_a_host_without_resctrl_is_one_line_on_stderr(run: Run, tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text(f"[resctrl]\npath = {tmp_path}/resctrl\n")
    for option in ("--dry-run", "--yes"):
        ran = run("--config-file", str(tmp_path / "vmqos.conf"), "reset", option)
        assert (ran.status, ran.out) == (1, "")
        assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(("said", "status"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_only_a_yes_is_one_and_the_end_of_the_input_is_a_no(
    run: Run, monkeypatch: pytest.MonkeyPatch, said: str, status: int
) -> None:
    done = []
    monkeypatch.setattr(reset, "prepare", lambda *_: Planned())
    monkeypatch.setattr(reset, "perform", lambda *where: done.append(where))
    monkeypatch.setattr(sys, "stdin", Stream(said))
    ran = run("reset", "--force", "--no-placement")
    assert (ran.status, bool(done)) == (status, status == 0)
    assert "  - a step\n" in ran.out and "Continue? [y/N] " in ran.err
    assert ("you did not say yes" in ran.err) == (status == 1)
