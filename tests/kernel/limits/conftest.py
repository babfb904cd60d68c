# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the kernel's resctrl, freshly mounted, and the caches of the guest."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.functional.resctrl_client import mounted
from tests.kernel import limbo
from vmqos.resctrl import topology
from vmqos.resctrl.filesystem import Filesystem


@pytest.fixture
def fs() -> Iterator[Filesystem]:
    """resctrl, mounted so that it tells each group's CLOSID and RMID."""
    with mounted.kernels("debug") as filesystem, limbo.that_ends(filesystem):
        yield filesystem


@pytest.fixture
def threshold(fs: Filesystem) -> int:
    """The occupancy in bytes below which a freed RMID is free: whatever it was, some times as much is allowed, too."""
    fs.write(limbo.THRESHOLD, str(limbo.COUNTER_UNIT))
    return limbo.COUNTER_UNIT


@pytest.fixture
def caches() -> dict[int, frozenset[int]]:
    """The CPUs of each L3 by cache id."""
    found = topology.l3_of_cpus()
    assert len(found) > 1, "the tests need a second L3, which can be switched off"
    return found


@pytest.fixture
def last_cache(caches: dict[int, frozenset[int]]) -> int:
    """The id of a cache whose CPUs can all be switched off: that of the first CPU can't."""
    last = max(caches)
    assert 0 not in caches[last]
    return last


@pytest.fixture
def spinner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that keeps the first CPU busy."""
    command = ["taskset", "--cpu-list", "0", "sh", "-c", "while :; do :; done"]
    with subprocess.Popen(command) as process:
        yield process
        process.kill()


def hardware_ids(fs: Filesystem, group: str) -> tuple[int, int]:
    """CLOSID and RMID of a group (mount option ``debug``)."""
    control = group.partition("mon_groups/")[0].rstrip("/")
    return int(fs.read(control, "ctrl_hw_id")), int(fs.read(group, "mon_hw_id"))


def cpu_of(cpus: frozenset[int]) -> int:
    """One CPU of a cache."""
    return min(cpus)
