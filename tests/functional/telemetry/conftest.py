# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a simulator whose counters say what a test wants, and one with many groups."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.functional.agent.conftest import tree, wait_for_vm
from tools.lab import mounts, processes
from tools.lab.workspace import CHECKOUT, Workspace

__all__ = ["tree", "wait_for_vm"]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Faulty:
    """See :mod:`tests.functional.telemetry.faulty_simulator`."""

    root: Path
    faults: Path

    def say(self, group: Path, text: str, *caches: int) -> None:
        """Let all counters of a group say that, on these caches."""
        lines = self.faults.read_text() if self.faults.exists() else ""
        self.faults.write_text(lines + "".join(f"{group.name} {cache} {text}\n" for cache in caches))

    def recover(self) -> None:
        """Let all counters count again."""
        self.faults.unlink()


@pytest.fixture
def faulty(workspace: Workspace) -> Iterator[Faulty]:
    """Two caches, whose counters have counted for long."""
    root = workspace.path / f"faulty-{next(_numbers)}"
    root.mkdir()
    workspace.record_mount(root)
    made = Faulty(root, workspace.path / f"{root.name}.faults")
    command = [sys.executable, "-m", "tests.functional.telemetry.faulty_simulator", str(root), "cascade-lake"]
    process = subprocess.Popen([*command, str(made.faults)], cwd=CHECKOUT, start_new_session=True)
    workspace.record_process(process.pid)
    processes.wait_until(lambda: os.path.ismount(root) and (root / "schemata").exists(), "the simulator mounting", 120)
    yield made
    mounts.end(root, process)
    workspace.forget_process(process.pid)
