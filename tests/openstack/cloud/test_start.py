# SPDX-License-Identifier: Apache-2.0
"""A cloud that is interrupted while it starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.lab import processes
from tools.lab.workspace import CHECKOUT

pytestmark = pytest.mark.timeout(300)

START = """\
from tests.openstack.cloud.cloud import Cloud
from tools.lab.workspace import Workspace

with Workspace() as workspace:
    print(workspace.path, flush=True)
    Cloud(workspace, print)
"""


@pytest.fixture(autouse=True)
def _logs() -> None:
    """Not those of the cloud that the other tests have."""


def that_name(path: Path) -> set[int]:
    """The processes whose command names something in that directory."""
    found = set()
    for pid in processes.all_pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if f"{path}/".encode() in command:
            found.add(pid)
    return found


def test_a_start_that_is_interrupted_leaves_no_process_mount_or_file() -> None:
    command = [sys.executable, "-c", START]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout
        path = Path(started.stdout.readline().strip())
        # Some of them end by themselves, and one that has just been forked does not bear its name yet.
        processes.wait_until(
            lambda: len(list((path / "processes").iterdir())) >= 6 and len(that_name(path)) >= 4,
            "six processes that were started, and four at a time that name the directory",
            60.0,
        )
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=120)
    assert "KeyboardInterrupt" in said
    assert not path.exists()
    assert bytes(path) not in Path("/proc/self/mountinfo").read_bytes()
    assert not that_name(path)
