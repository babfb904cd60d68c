# SPDX-License-Identifier: Apache-2.0
"""Each command that the doctor prints for what is wrong with resctrl is run as printed, and mends it.

What needs systemd, a kernel's resctrl or its mount options is run in guests: ``tests/kernel/units``,
``tests/kernel/agent/test_cdp.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.cli.test_commands import vmqos
from tests.functional.conftest import MakeAgent
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator

READERS = "daemon"
"""A group of every system, in the place of ``resctrl``."""


def leave_ways_idle(root: Path) -> None:
    (root / "schemata").write_text("L3:0=7c;1=7fc\n")


def starve_the_host(root: Path) -> None:
    (root / "schemata").write_text("L3:0=1;1=1\n")


def keep_every_rmid(root: Path) -> None:
    (root / "info/L3_MON/max_threshold_occupancy").write_text("0\n")


def leave_an_experiment(root: Path) -> None:
    (root / "schemata").write_text("L3:0=7f0;1=7f0\n")
    (root / "vmqos.bench-victim").mkdir()
    (root / "vmqos.bench-victim/schemata").write_text("L3:0=f;1=f\n")


def let_nobody_write(root: Path) -> None:
    subprocess.run(["mount", "-i", "-o", "remount,bind,ro", str(root)], check=True)


def let_everybody_in(root: Path) -> None:
    root.parent.chmod(0o755)
    root.chmod(0o755)


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        (leave_ways_idle, "Default group"),
        (starve_the_host, "Default group"),
        (keep_every_rmid, "RMIDs in limbo"),
        (leave_an_experiment, "Groups of 'vmqos bench'"),
        (let_nobody_write, "resctrl mount"),
        (let_everybody_in, "Access to resctrl"),
    ],
)
def test_what_the_doctor_says_mends_it(
    make_agent: MakeAgent, simulator: Simulator, spoil: Callable[[Path], None], check: str
) -> None:
    configured = make_agent({"resctrl": {"readers_group": READERS}})
    spoil(simulator.root)
    before = problems(configured)
    done = subprocess.run(["sh", "-c", before[check]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert before.keys() - problems(configured).keys() == {check}


def test_a_group_that_is_removed_as_the_doctor_says_leaves_a_closid(
    make_agent: MakeAgent, simulator: Simulator
) -> None:
    configured, made = make_agent(), 0
    while True:
        try:
            (simulator.root / f"someone-{made}").mkdir()
        except OSError:
            break
        made += 1
    command = problems(configured)["Control groups (CLOSIDs)"]
    subprocess.run(["sh", "-c", command.replace("NAME", "someone-0")], check=True)
    assert "Control groups (CLOSIDs)" not in problems(configured)


def test_the_rest_of_a_simulator_that_died_is_unmounted_as_the_doctor_says(
    make_agent: MakeAgent, simulator: Simulator
) -> None:
    configured = make_agent()
    # Its helper would unmount it.
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"fusermount3") and os.fsencode(simulator.root) in words:
                os.kill(pid, signal.SIGKILL)
    assert simulator.pid is not None
    os.kill(simulator.pid, signal.SIGKILL)
    command = problems(configured)["resctrl mount"]
    assert command == f"fusermount3 -u -z {simulator.root}"
    subprocess.run(["sh", "-c", command], check=True)
    assert problems(configured)["resctrl mount"] != command
    simulator.stop()
    simulator.start()
    assert "resctrl mount" not in problems(configured)


def problems(configured: Agent) -> dict[str, str]:
    """The command for each check that found something; the agent does not run."""
    done = vmqos(configured, "doctor", "--problems", "-f", "json")
    return {finding["title"]: finding["command"] for finding in json.loads(done.stdout)}
