# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Run


def test_a_host_without_resctrl_is_one_line_on_stderr(run: Run, tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text(f"[resctrl]\npath = {tmp_path}/resctrl\n")
    for option in ("--dry-run", "--yes"):
        ran = run("--config-file", str(tmp_path / "vmqos.conf"), "reset", option)
        assert (ran.status, ran.out) == (1, "")
        assert len(ran.err.splitlines()) == 1
