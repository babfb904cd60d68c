# SPDX-License-Identifier: Apache-2.0
"""``mon_data``: which counters there are, and what they show of a group that did nothing."""

from __future__ import annotations

import os

from tests.conformance import needs
from tests.conformance.answer import refused
from tests.conformance.machines import monitoring_of
from tests.conformance.operations import content_of

pytestmark = needs.MONITORING


def folders(rdt):
    return [f"mon_L3_{number:02}" for number in rdt.cache_ids(3)]


def all_folders(rdt):
    """With those of the packages, where these count."""
    packages = rdt.cache_ids(3) if rdt.profile.packages else ()
    return sorted([*folders(rdt), *(f"mon_PERF_PKG_{number:02}" for number in packages)])


def files(rdt, folder):
    """What is in one folder that is no folder itself: that of a cache with sub-NUMA nodes has some."""
    return [name for name in rdt.ls(folder) if not name.startswith("mon_sub_")]


def test_each_l3_has_a_folder_of_counters(rdt):
    assert rdt.ls("mon_data") == all_folders(rdt)
    for folder in folders(rdt):
        assert files(rdt, f"mon_data/{folder}") == sorted(monitoring_of(rdt.profile).events)


def test_each_group_has_counters_of_its_own(rdt):
    rdt.group("g")
    rdt.group("g/mon_groups/m")
    for group in ("g", "g/mon_groups/m"):
        assert rdt.ls(f"{group}/mon_data") == all_folders(rdt)
        assert files(rdt, f"{group}/mon_data/mon_L3_00") == sorted(monitoring_of(rdt.profile).events)


def test_a_counter_is_a_number(rdt):
    for event in monitoring_of(rdt.profile).events:
        assert rdt.read(f"mon_data/mon_L3_00/{event}").strip().isdigit()


def test_a_new_groups_counters_are_numbers_or_say_that_they_are_not_there_yet(rdt):
    rdt.group("g")
    for event in monitoring_of(rdt.profile).events:
        text = rdt.read(f"g/mon_data/mon_L3_00/{event}")
        assert text == "Unavailable\n" or text.strip().isdigit()


def test_a_counter_cannot_be_written(rdt):
    for event in monitoring_of(rdt.profile).events:
        assert rdt.permissions(f"mon_data/mon_L3_00/{event}") == "100444"
        assert rdt.write(f"mon_data/mon_L3_00/{event}", "0\n") == refused("EACCES")


def test_occupancy_is_counted_in_whole_units_of_the_hardware(rdt):
    assert int(rdt.read("mon_data/mon_L3_00/llc_occupancy")) % monitoring_of(rdt.profile).scale == 0


def test_a_folder_of_counters_cannot_be_removed(rdt):
    assert rdt.rmdir("mon_data/mon_L3_00").errno == "EPERM"
    assert rdt.rmdir("mon_data").errno == "EPERM"


def test_what_is_removed_with_its_group_is_no_device(rdt):
    rdt.group("g")
    descriptor = os.open(os.path.join(rdt.root, "g/mon_data/mon_L3_00/llc_occupancy"), os.O_RDONLY)
    try:
        assert rdt.rmdir("g").errno is None
        assert rdt.do("read open", "g/mon_data", lambda path: os.pread(descriptor, 100, 0)).errno == "ENODEV"
    finally:
        os.close(descriptor)


def test_a_group_that_never_ran_holds_no_more_than_the_one_before_it_may_leave(rdt):
    rdt.group("g")
    held = int(rdt.read("g/mon_data/mon_L3_00/llc_occupancy"))
    # An RMID is free again below the threshold (fs/resctrl/monitor.c: __check_limbo).
    assert held == 0 or held < int(content_of(rdt.path("info/L3_MON/max_threshold_occupancy")))
