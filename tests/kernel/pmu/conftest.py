# SPDX-License-Identifier: Apache-2.0
"""Processes that execute what a test tells them, and a group that counts them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.functional.resctrl_client.mounted import retry
from tests.kernel import limbo
from tests.kernel.cachemodel import switch, walkers
from tests.kernel.cachemodel.walkers import Walker
from tests.kernel.pytest_guest import MountResctrl
from vmqos.resctrl.filesystem import Filesystem


class Start(Protocol):
    """Starts a worker on a CPU, and in a group if one is given."""

    def __call__(self, cpu: int, group: Path | None = None) -> Walker: ...


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worker, compiled."""
    path = tmp_path_factory.mktemp("worker") / "worker"
    source = Path(__file__).with_name("worker.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-pthread", "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture
def worker(program: Path) -> Iterator[Start]:
    """Starts workers, which end with the test."""
    with ExitStack() as stack:

        def start(cpu: int, group: Path | None = None) -> Walker:
            def enter() -> None:
                os.sched_setaffinity(0, {cpu})
                if group is not None:
                    (group / "tasks").write_text("0")

            return stack.enter_context(walkers.process([str(program)], enter))

        yield start


@pytest.fixture
def group(mount_resctrl: MountResctrl) -> Iterator[Path]:
    """A group with an RMID of its own; the model is off at the end."""
    root = mount_resctrl("debug")
    with limbo.that_ends(Filesystem(str(root))):
        made = root / "a"
        retry(made.mkdir, OSError)
        try:
            yield made
        finally:
            switch.turn_off()
