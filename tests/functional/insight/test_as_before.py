# SPDX-License-Identifier: Apache-2.0
"""What the tests of trials take for groups that are as they were before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.functional.insight.test_confirm import groups, is_as_before

OWN, OTHER = "vmqos.own", "vmqos.other"


@pytest.fixture
def simulator(tmp_path: Path) -> Any:
    """A default group and two others, with this process in one of them."""
    for name in ("", OWN, OTHER):
        (tmp_path / name / "mon_groups").mkdir(parents=True)
        (tmp_path / name / "schemata").write_text("L3:0=f\n")
        (tmp_path / name / "tasks").write_text("")
    (tmp_path / OWN / "tasks").write_text(f"{os.getpid()}\n")
    return SimpleNamespace(root=tmp_path)


def test_a_task_that_has_ended_is_missed_in_no_group(simulator: Any) -> None:
    with subprocess.Popen(["sleep", "60"]) as worker:
        (simulator.root / OWN / "tasks").write_text(f"{os.getpid()}\n{worker.pid}\n")
        before = groups(simulator)
        assert is_as_before(simulator, before)
        worker.kill()
    (simulator.root / OWN / "tasks").write_text(f"{os.getpid()}\n")
    assert is_as_before(simulator, before) and groups(simulator) != before


@pytest.mark.parametrize("where", ["nowhere", OTHER])
def test_a_task_that_lives_has_to_be_where_it_was(simulator: Any, where: str) -> None:
    before = groups(simulator)
    (simulator.root / OWN / "tasks").write_text("")
    if where != "nowhere":
        (simulator.root / where / "tasks").write_text(f"{os.getpid()}\n")
    assert not is_as_before(simulator, before)


def test_a_mask_and_a_group_have_to_be_as_they_were(simulator: Any) -> None:
    before = groups(simulator)
    (simulator.root / OTHER / "schemata").write_text("L3:0=7\n")
    assert not is_as_before(simulator, before)
    (simulator.root / OTHER / "schemata").write_text("L3:0=f\n")
    (simulator.root / OTHER / "mon_groups" / OTHER).mkdir()
    (simulator.root / OTHER / "mon_groups" / OTHER / "tasks").write_text("")
    assert not is_as_before(simulator, before)
