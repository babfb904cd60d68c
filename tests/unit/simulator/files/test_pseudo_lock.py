# SPDX-License-Identifier: Apache-2.0
"""Pseudo-locking takes ways from everybody."""

from __future__ import annotations

import errno

import pytest

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES

MACHINE = small(PROFILES["broadwell"])


@pytest.fixture
def bench() -> Bench:
    """The group pl is set up for locking, and two ways of cache 0 are free."""
    bench = Bench(MACHINE)
    bench.mkdir("pl")
    bench.write("pl/mode", "pseudo-locksetup\n")
    bench.write("schemata", "L3:0=ffffc\n")
    return bench


def test_a_group_being_set_up_hides_its_files(bench: Bench) -> None:
    assert bench.read("pl/schemata") == "L3:uninitialized\n"
    assert bench.read("pl/size") == "    L3:0=0;1=0\n"
    assert bench.machine.find("pl/tasks").mode & 0o777 == 0
    assert bench.refused("pl/tasks", "1\n") == "Pseudo-locking in progress\n"
    assert bench.refused("pl/cpus", "1\n").endswith("Pseudo-locking in progress\n")
    with pytest.raises(OSError) as refused:
        bench.mkdir("pl/mon_groups/x")
    assert refused.value.errno == errno.EINVAL


def test_setting_up_can_be_given_up(bench: Bench) -> None:
    bench.write("pl/mode", "shareable\n")
    assert bench.machine.find("pl/tasks").mode & 0o777 == 0o644
    assert bench.read("pl/schemata").endswith("L3:0=fffff;1=fffff\n")


def test_a_group_removed_while_it_is_set_up_gives_its_class_back(bench: Bench) -> None:
    bench.machine.rmdir("pl")
    for number in range(15):
        bench.mkdir(f"g{number}")
    assert bench.read("g0/schemata").endswith("L3:0=fffff;1=fffff\n")


def test_umount_unlocks(bench: Bench) -> None:
    bench.write("pl/schemata", "L3:0=3\n")
    bench.machine.unmount()
    bench.machine.mount()
    bench.write("schemata", "L3:0=3\n")


def test_a_locked_region_is_nobodys(bench: Bench) -> None:
    bench.write("pl/schemata", "L3:0=3;1=3\n")
    assert (bench.read("pl/mode"), bench.read("pl/schemata")) == ("pseudo-locked\n", "L3:0=3\n")
    assert bench.read("pl/cpus_list") == "0-1\n"
    assert bench.read("info/L3/bit_usage").startswith("0=XXSSSSSSSSSSSSSSSSPP;")
    assert bench.refused("schemata", "L3:0=7\n") == "CBM overlaps with pseudo-locked region\n"
    assert bench.refused("pl/schemata", "L3:0=3\n") == "Resource group is pseudo-locked\n"
    assert bench.refused("pl/mode", "shareable\n") == "Cannot change pseudo-locked group\n"
    bench.mkdir("g")
    assert bench.read("g/schemata").endswith("L3:0=ffffc;1=fffff\n")
    bench.machine.rmdir("pl")
    bench.write("schemata", "L3:0=fffff\n")


def test_a_region_whose_device_is_open_outlives_its_group(bench: Bench) -> None:
    bench.write("pl/schemata", "L3:0=3\n")
    group = next(group for group in bench.machine.mounted.groups if group.region)
    assert group.region is not None
    group.region.device_open = True
    bench.machine.rmdir("pl")
    assert bench.refused("schemata", "L3:0=fffff\n") == "CBM overlaps with pseudo-locked region\n"


def test_one_region_a_cache_is_all(bench: Bench) -> None:
    bench.write("pl/schemata", "L3:0=3\n")
    bench.mkdir("pl2")
    bench.write("pl2/mode", "pseudo-locksetup\n")
    assert bench.refused("pl2/schemata", "L3:0=c\n") == "Pseudo-locked region in hierarchy\n"


def test_only_an_idle_group_can_be_set_up() -> None:
    bench = Bench(MACHINE)
    for name in ("busy", "pinned", "watched", "watched/mon_groups/m"):
        bench.mkdir(name)
    bench.table.start(10)
    bench.write("busy/tasks", "10\n")
    bench.write("pinned/cpus", "1\n")
    assert bench.refused("busy/mode", "pseudo-locksetup\n") == "Tasks assigned to resource group\n"
    assert bench.refused("pinned/mode", "pseudo-locksetup\n") == "CPUs assigned to resource group\n"
    assert bench.refused("watched/mode", "pseudo-locksetup\n") == "Monitoring in progress\n"
    assert bench.refused("mode", "pseudo-locksetup\n") == "Cannot pseudo-lock default group\n"


@pytest.mark.parametrize(
    ("profile", "options", "status"),
    [("cascade-lake", "", "Pseudo-locking not supported\n"), ("broadwell", "cdp", "CDP enabled\n")],
)
def test_not_every_machine_can_lock(profile: str, options: str, status: str) -> None:
    bench = Bench(profile, options)
    bench.mkdir("g")
    assert bench.refused("g/mode", "pseudo-locksetup\n") == status
