# SPDX-License-Identifier: Apache-2.0
"""What this machine's systemd says of our units; ``tests/kernel/units`` has one run them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools.lab.workspace import CHECKOUT

UNITS = CHECKOUT / "etc" / "systemd"
EXPOSURE = 2.5
"""The most that the agent's unit may have; ``systemd-analyze security`` says for what."""


def test_the_agents_exposure_is_no_larger_than_promised() -> None:
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(UNITS / "vmqos-agent.service")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (level,) = re.findall(r"exposure level for vmqos-agent.service: ([0-9.]+)", said)
    assert float(level) <= EXPOSURE, said


@pytest.mark.parametrize("unit", sorted(UNITS.iterdir()), ids=lambda unit: unit.name)
def test_systemd_finds_no_fault_in_a_unit(unit: Path, tmp_path: Path) -> None:
    # The program is not where a compute node has it.
    for one in UNITS.iterdir():
        text = one.read_text().replace("/usr/bin/vmqos-agent ", "/bin/true ")
        (tmp_path / one.name).write_text(text.replace("ExecStart=/usr/bin/vmqos ", "ExecStart=/bin/true "))
    command = ["systemd-analyze", "verify", "--man=no", "--generators=no", str(tmp_path / unit.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert unit.name not in done.stdout + done.stderr
