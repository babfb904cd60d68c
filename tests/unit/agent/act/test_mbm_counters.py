# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agent.serve.test_vms import GROUP, snapshot, with_record
from vmqos.agent.act.mbm_counters import assign_counters
from vmqos.resctrl.filesystem import Filesystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    info = tmp_path / "info" / "L3_MON"
    info.mkdir(parents=True)
    (info / "mbm_assign_mode").write_text("[mbm_event]\ndefault\n")
    (info / "available_mbm_cntrs").write_text("0=1;1=1\n")
    (tmp_path / GROUP).mkdir()
    (tmp_path / GROUP / "mbm_L3_assignments").write_text("mbm_total_bytes:0=_;1=e\nmbm_local_bytes:0=_;1=e\n")
    return tmp_path


def test_a_vm_gets_what_counters_are_free_and_no_more(root: Path) -> None:
    assert assign_counters(Filesystem(str(root)), snapshot()) == 1
    assert (root / GROUP / "mbm_L3_assignments").read_text().startswith("mbm_total_bytes:0=e\n")


def test_nothing_is_written_where_no_counter_is_free(root: Path) -> None:
    (root / "info" / "L3_MON" / "available_mbm_cntrs").write_text("0=0;1=0\n")
    before = (root / GROUP / "mbm_L3_assignments").read_text()
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0
    assert (root / GROUP / "mbm_L3_assignments").read_text() == before


def test_nothing_is_done_where_every_group_is_counted(root: Path) -> None:
    (root / "info" / "L3_MON" / "mbm_assign_mode").write_text("mbm_event\n[default]\n")
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0


def test_a_group_that_is_gone_is_passed_over(root: Path) -> None:
    (root / GROUP / "mbm_L3_assignments").unlink()
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0


def test_a_mode_without_a_count_is_told_in_the_log_and_harms_nothing(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "info" / "L3_MON" / "available_mbm_cntrs").unlink()
    assert assign_counters(Filesystem(str(root)), snapshot()) == 0
    assert "available_mbm_cntrs" in caplog.text


def test_a_vm_that_nobody_monitors_is_left_alone(root: Path) -> None:
    assert assign_counters(Filesystem(str(root)), with_record(snapshot(), unmonitored="no RMID")) == 0
