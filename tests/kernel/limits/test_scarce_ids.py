# SPDX-License-Identifier: Apache-2.0
"""CLOSIDs and RMIDs are few, and an RMID whose lines are still in a cache is not given out again."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.functional.resctrl_client.mounted import retry
from tests.kernel.inside import msr
from tests.kernel.limbo import THRESHOLD
from tests.kernel.limits import patiently
from tests.kernel.limits.conftest import cpu_of, hardware_ids
from vmqos.resctrl import exceptions, groups, info
from vmqos.resctrl.filesystem import Filesystem

pytestmark = pytest.mark.guest(machines=("cascade-lake", "milan"))

LIMBO_CHECK = 1.0
"""Seconds between two looks of the kernel at the RMIDs in limbo (CQM_LIMBOCHECK_INTERVAL)."""


def take_every_rmid(fs: Filesystem) -> list[str]:
    """Make monitoring groups until no RMID is left, waiting for those that an earlier test left in limbo."""
    made: list[str] = []
    for number in itertools.count():
        try:
            patiently.create_monitoring_group(fs, "", f"m{number}")
        except exceptions.NoRmidLeft as refusal:
            assert (refusal.errno_name, refusal.last_cmd_status) == ("ENOSPC", "Out of RMIDs")
            return made
        made.append(f"m{number}")
    raise AssertionError


def test_the_machine_has_as_many_rmids_as_it_says(fs: Filesystem) -> None:
    monitoring = info.read_capabilities(fs).monitoring
    assert monitoring is not None
    assert len(take_every_rmid(fs)) == monitoring.num_rmids - 1, "one is the default group's"


def test_without_an_rmid_no_control_group_is_made_and_nothing_of_it_stays(fs: Filesystem) -> None:
    take_every_rmid(fs)
    with pytest.raises(exceptions.NoRmidLeft, match="Out of RMIDs"):
        groups.create(fs, "control")
    assert [group.name for group in groups.list_control_groups(fs)] == [""]


def test_the_last_closid_is_told_and_a_removed_group_gives_its_own_back(fs: Filesystem) -> None:
    names = [f"c{number}" for number in range(1, info.read_capabilities(fs).num_closids)]
    patiently.create(fs, *names)
    with pytest.raises(exceptions.NoClosidLeft) as refused:
        groups.create(fs, "one-too-many")
    assert (refused.value.errno_name, refused.value.last_cmd_status) == ("ENOSPC", "Out of CLOSIDs")
    freed = hardware_ids(fs, names[2])[0]
    groups.remove(fs, names[2])
    # Its RMID is in limbo, and those of an earlier test may be: a CLOSID is not waited for.
    patiently.create(fs, "next")
    assert hardware_ids(fs, "next")[0] == freed


def test_an_rmid_is_kept_back_while_a_cache_holds_more_than_the_threshold_of_it(
    fs: Filesystem, threshold: int, caches: dict[int, frozenset[int]], last_cache: int
) -> None:
    resting = take_every_rmid(fs)[3]
    rmid = hardware_ids(fs, f"mon_groups/{resting}")[1]
    cpu = cpu_of(caches[last_cache])
    # It fades away by itself, by half in two seconds: this much lasts for a dozen, should the guest stand still.
    msr.set_occupancy(cpu, rmid, 100 * threshold)
    groups.remove_monitoring_group(fs, "", resting)
    began = time.monotonic()
    while time.monotonic() < began + 2 * LIMBO_CHECK:
        msr.set_occupancy(cpu, rmid, 100 * threshold)
        with pytest.raises(exceptions.RmidsInLimbo) as refused:
            groups.create_monitoring_group(fs, "", "next")
        assert (refused.value.errno_name, refused.value.last_cmd_status) == ("EBUSY", "Out of RMIDs")
        with pytest.raises(exceptions.RmidsInLimbo):
            groups.create(fs, "control")
        time.sleep(0.1)
    msr.set_occupancy(cpu, rmid, 0)
    patiently.create_monitoring_group(fs, "", "next")
    assert hardware_ids(fs, "mon_groups/next")[1] == rmid


def test_a_higher_threshold_lets_an_rmid_go_with_its_lines_still_there(
    fs: Filesystem, threshold: int, caches: dict[int, frozenset[int]], last_cache: int
) -> None:
    resting = take_every_rmid(fs)[3]
    rmid = hardware_ids(fs, f"mon_groups/{resting}")[1]
    cpu = cpu_of(caches[last_cache])
    msr.set_occupancy(cpu, rmid, 5 * threshold)
    groups.remove_monitoring_group(fs, "", resting)
    fs.write(THRESHOLD, str(7 * threshold))

    def create_with_lines_there() -> None:
        # They fade away by themselves.
        msr.set_occupancy(cpu, rmid, 5 * threshold)
        groups.create_monitoring_group(fs, "", "next")

    retry(create_with_lines_there, exceptions.RmidsInLimbo)
    occupancy = int(fs.read("mon_groups/next/mon_data", f"mon_L3_{last_cache:02}", "llc_occupancy"))
    assert hardware_ids(fs, "mon_groups/next")[1] == rmid
    assert occupancy > 0, "the new group begins with the old one's lines"
