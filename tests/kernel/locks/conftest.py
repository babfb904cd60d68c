# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a mounted resctrl without locks at the test's end, the command, and who maps a region."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.pytest_guest import MountResctrl


@dataclass(frozen=True, slots=True)
class Command:
    """``vmqos lock`` with a configuration.

    :ivar config: the configuration's file.
    """

    config: Path

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(self.config), "lock", *arguments]
        return subprocess.run(command, text=True, capture_output=True, check=False)

    def read(self, *arguments: str) -> Any:
        """What a command that has to succeed prints as JSON."""
        done = self(*arguments, "-f", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refusal(self, *arguments: str) -> str:
        """What a command says that has to fail."""
        done = self(*arguments)
        assert (done.returncode, done.stdout) == (1, ""), done
        return done.stderr


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """The command with the default configuration."""
    config = tmp_path / "vmqos.conf"
    config.write_text("[resctrl]\npath = /sys/fs/resctrl\n")
    return Command(config)


@pytest.fixture
def root(mount_resctrl: MountResctrl) -> Iterator[Path]:
    """resctrl, from which locks are gone when it is unmounted: from Linux 6.15 on umount would hang."""
    mounted = mount_resctrl()
    yield mounted
    for mode in mounted.glob("*/mode"):
        if mode.read_text().startswith("pseudo-lock"):
            mode.parent.rmdir()


Mapper = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def mapper() -> Iterator[Mapper]:
    """Start a process that maps a device, confined to CPUs or not, and tells what it sees until its input ends."""
    started: list[subprocess.Popen[str]] = []

    def start(device: str, size: int, cpus: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.kernel.locks.mapper", device, str(size), cpus]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.communicate(timeout=60)


def masks(root: Path) -> dict[str, str]:
    """Every group's schemata and mode."""
    directories = [root, *(mode.parent for mode in root.glob("*/mode"))]
    return {str(one): (one / "schemata").read_text() + (one / "mode").read_text() for one in directories}
