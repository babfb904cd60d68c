# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the groups of two VMs, one of which works."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.functional.resctrl_client.mounted import retry, sleepers
from tests.kernel.limits.conftest import caches, fs, hardware_ids, last_cache, spinner
from vmqos.resctrl import exceptions, groups, tasks
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import EVENTS, Snapshot, Sweeper, VmReading

OCCUPANCY, TOTAL, LOCAL = EVENTS
BUSY, IDLE = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
CLASS = "vmqos.shared-ways2"

SPIKE = 1 << 37
"""Bytes: more than a guest moves in a test, less than a counter of 24 bits in units of 64 KiB that went round."""


def name_of(uuid: str) -> str:
    """The name of a VM's group."""
    return f"vmqos.{uuid}"


def make_group(fs: Filesystem, uuid: str, control: str = "") -> str:
    """Make a VM's monitoring group, once an RMID is free; its directory below the root."""
    name = name_of(uuid)
    retry(lambda: groups.create_monitoring_group(fs, control, name), exceptions.RmidsInLimbo)
    return groups.monitoring_directory(control, name)


def enter(fs: Filesystem, directory: str, *tids: int) -> None:
    """Move tasks into a VM's monitoring group, wherever they are."""
    control = directory.partition("mon_groups/")[0].rstrip("/")
    for group in (control, directory):
        tasks.move(fs, group, tids)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two VMs in the default group.

    :ivar worker: the PID of the one's only task, which works on the first CPU all the time.
    :ivar rmid: its RMID.
    """

    worker: int
    rmid: int


@pytest.fixture
def pair(fs: Filesystem, spinner: subprocess.Popen[bytes]) -> Iterator[Pair]:
    """See :class:`Pair`; the one has worked for a moment."""
    busy, idle = make_group(fs, BUSY), make_group(fs, IDLE)
    with sleepers(2) as sleeping:
        enter(fs, idle, *sleeping.tids)
        enter(fs, busy, spinner.pid)
        yield Pair(spinner.pid, hardware_ids(fs, busy)[1])


@pytest.fixture
def sweeper(fs: Filesystem) -> Iterator[Sweeper]:
    """One that keeps files open, as the agent's does."""
    with Sweeper(fs.root) as made:
        yield made


def until_more(sweeper: Sweeper, before: Snapshot, uuid: str = BUSY) -> Snapshot:
    """A sweep that finds more traffic of a VM than an earlier one."""

    def look() -> Snapshot:
        found = sweeper.sweep()
        then, now = before.vms[uuid].totals[TOTAL].value, found.vms[uuid].totals[TOTAL].value
        assert then is not None and now is not None and now > then, (then, now)
        return found

    return retry(look, AssertionError)


def numbers(vm: VmReading, cache: int | None = None) -> Mapping[str, int | float | None]:
    """A VM's values, of one cache or in all."""
    readings = vm.totals if cache is None else vm.caches[cache]
    return {event: readings[event].value for event in EVENTS}


__all__ = ["caches", "fs", "last_cache", "spinner"]
