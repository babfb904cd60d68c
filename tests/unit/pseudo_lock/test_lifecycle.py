# SPDX-License-Identifier: Apache-2.0
"""Tests of locked regions on the simulator's machine; what needs a mounted resctrl is in tests/functional/cli."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.machine import SimulatedResctrl
from vmqos.host import resctrl_state
from vmqos.pseudo_lock import exceptions, lifecycle, regions
from vmqos.pseudo_lock.lifecycle import Wanted
from vmqos.pseudo_lock.regions import Host
from vmqos.resctrl import mount, pseudo_lock
from vmqos.resctrl.exceptions import CommandFailed

CPUS = 4
TABLE = Wanted("table", "L3", 1, 4096)


@pytest.fixture
def resctrl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedResctrl]:
    (tmp_path / "resctrl").mkdir()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(CPUS)))
    found = SimulatedResctrl(tmp_path / "resctrl", tmp_path / "cpu", "broadwell")
    mounted = mount.Mount(found.root, frozenset(), read_only=False, simulated=True)
    monkeypatch.setattr(mount, "find", lambda path, **_: mounted)
    for module in (lifecycle, regions):
        monkeypatch.setattr(module, "Filesystem", lambda path: found)
    yield found


@pytest.fixture
def host(resctrl: SimulatedResctrl, tmp_path: Path) -> Host:
    return Host(resctrl.root, sysfs=str(tmp_path / "cpu"), floor=1)


def switch(resctrl: SimulatedResctrl, *, on: bool) -> None:
    """Take the second cache offline, or back."""
    for cpu in range(CPUS // 2, CPUS):
        resctrl.machine.set_online(cpu, on)


@pytest.mark.parametrize("is_back", [False, True], ids=["offline", "back"])
def test_a_region_whose_cache_went_offline_is_listed_and_can_be_removed(
    host: Host, resctrl: SimulatedResctrl, is_back: bool
) -> None:
    before = resctrl.read("schemata")
    lifecycle.create(host, TABLE)
    switch(resctrl, on=False)
    if is_back:
        switch(resctrl, on=True)
    (lock,) = regions.list_locks(host)
    assert (lock.name, lock.mode, lock.cache, lock.mask.bits) == ("table", "pseudo-locked", "", 0)
    state = resctrl_state.read(resctrl)
    assert state.modes[TABLE.group] == "pseudo-locked" and not state.layout.groups[-1].holds_closid
    assert resctrl_state.read_what_others_change(resctrl, state) is state
    with pytest.raises(exceptions.LockExists):
        lifecycle.create(host, TABLE)
    assert lifecycle.remove(host, "table").name == "table"
    assert regions.list_locks(host) == []
    switch(resctrl, on=True)
    assert resctrl.read("schemata") == before


def test_a_lock_that_is_removed_while_the_kernel_refuses_the_default_group_its_ways_is_told_to_be_removed(
    host: Host, resctrl: SimulatedResctrl
) -> None:
    lifecycle.create(host, TABLE)

    def refuse(path: str) -> None:
        if path == "schemata" and TABLE.group not in resctrl.directories():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    resctrl.before = refuse
    with pytest.raises(exceptions.WaysNotGivenBack, match="the lock 'table' is removed, but") as told:
        lifecycle.remove(host, "table")
    assert told.value.lock.cache == "L3:1"
    resctrl.before = lambda path: None
    with pytest.raises(exceptions.NoSuchLock):
        lifecycle.remove(host, "table")


def test_a_region_that_is_not_what_it_should_be_and_can_not_be_removed_is_not_told_to_be_taken_back(
    host: Host, resctrl: SimulatedResctrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pseudo_lock, "read_sizes", lambda fs, name: {"L3": {1: 1 if name else 26214400}})

    def refuse(name: str) -> None:
        raise CommandFailed(action="rmdir", path=name, data="", errno_name="EBUSY", last_cmd_status="")

    monkeypatch.setattr(SimulatedResctrl, "rmdir", lambda fs, name: refuse(name))
    with pytest.raises(exceptions.NotTakenBack) as told:
        lifecycle.create(host, TABLE)
    assert "its size is 1 bytes. Not everything could be taken back" in str(told.value)
    assert "everything was taken back" not in str(told.value)


def test_what_a_command_left_that_was_killed_once_it_had_made_the_group_is_listed_and_can_be_removed(
    host: Host, resctrl: SimulatedResctrl
) -> None:
    before = resctrl.read("schemata")

    class Killed(BaseException):
        pass

    def kill(path: str) -> None:
        # Nothing can be written, nor removed, by a process that is not there any more.
        if TABLE.group in resctrl.directories():
            raise Killed

    resctrl.before = kill
    with pytest.raises(Killed):
        lifecycle.create(host, TABLE)
    resctrl.before = lambda path: None
    (lock,) = regions.list_locks(host)
    assert (lock.name, lock.ours, lock.mode, lock.cache, lock.is_finished) == ("table", True, "shareable", "", False)
    assert lifecycle.remove(host, "table").name == "table"
    assert regions.list_locks(host) == [] and resctrl.read("schemata") == before
    assert lifecycle.create(host, TABLE).is_finished
