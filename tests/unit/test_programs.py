# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vmqos import programs

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("program", "module", "function"),
    [
        ("vmqos", "vmqos.cli.main", "main"),
        ("vmqos-agent", "vmqos.programs", "agent"),
        ("vmqos-gateway", "vmqos.programs", "gateway"),
    ],
)
def test_a_program_whose_libraries_are_missing_says_how_they_come(program: str, module: str, function: str) -> None:
    run = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from {module} import {function}; sys.exit({function}())"
    # -S: without the environment's site-packages.
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", run], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"{program}: there is no ") and len(ran.stderr.splitlines()) == 1
    assert "'vmqos[agent]'" in ran.stderr


def test_a_module_of_ours_that_is_missing_is_a_fault_and_no_advice() -> None:
    with pytest.raises(ModuleNotFoundError):
        programs.what_is_missing("vmqos", ModuleNotFoundError("no vmqos.loop", name="vmqos.loop"))


def test_with_them_the_programs_are_the_agents_and_the_gateways_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in (programs.agent, programs.gateway):
        monkeypatch.setattr(sys, "argv", ["program", "--config-file", "/nowhere.conf"])
        assert program() == 1


@pytest.mark.parametrize("program", ["agent", "gateway"])
def test_a_log_file_that_can_not_be_written_is_one_line(program: str, tmp_path: Path) -> None:
    (tmp_path / "vmqos.conf").write_text(f"[DEFAULT]\nlog_file = {tmp_path}/none/log\n")
    command = [sys.executable, "-m", f"vmqos.{program}.main", "--config-file", str(tmp_path / "vmqos.conf")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    told = f"vmqos-{program}: can't write the log to {tmp_path}/none/log ([DEFAULT] log_file, log_dir): "
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"{told}No such file or directory\n")
