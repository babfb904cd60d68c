# SPDX-License-Identifier: Apache-2.0
"""What packages count: numbers as the kernel prints them, and counts that an RMID keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.kernel_versions import LINUX_6_12
from vmqos.simulator.hardware.package_counters import PackageCounters, grown
from vmqos.simulator.hardware.profiles import ENERGY_EVENTS, EXECUTION_EVENTS, PROFILES
from vmqos.simulator.hardware.tasks import Usage
from vmqos.simulator.kernel.tree import Directory

MACHINE = small(PROFILES["clearwater-forest"])
CYCLES = "mon_data/mon_PERF_PKG_00/unhalted_core_cycles"


def _names(bench: Bench, path: str) -> set[str]:
    folder = bench.machine.find(path)
    assert isinstance(folder, Directory)
    return {node.name for node in folder}


@pytest.mark.parametrize(
    ("joules", "shown"),
    [
        (0.0, "0.000000"),
        (1.5, "1.500000"),
        (2.0 + 1 / (1 << 18), "2.000004"),
        (3.0 - 1 / (1 << 18), "2.999996"),
        (5775 / (1 << 18), "0.022030"),
    ],
)
def test_a_fraction_of_18_bits_is_shown_with_six_places_rounded(joules: float, shown: str) -> None:
    counters = PackageCounters()
    counters.add(1, 0, {"core_energy": joules})
    assert counters.read([1], 0, "core_energy") == shown


def test_events_of_execution_are_whole_numbers() -> None:
    counters = PackageCounters()
    counters.add(1, 0, grown(1.0, 1e6))
    for event in EXECUTION_EVENTS:
        assert counters.read([1], 0, event).isdigit()


def test_an_rmid_that_a_package_has_not_heard_of_is_unavailable_there_and_left_out_of_sums() -> None:
    counters = PackageCounters()
    counters.add(2, 0, {"uops_retired": 7})
    assert counters.read([1], 0, "uops_retired") == "Unavailable"
    assert counters.read([2], 1, "uops_retired") == "Unavailable"
    assert counters.read([1, 2], 0, "uops_retired") == "7"
    counters.set_fault(2, 0, "Error")
    assert counters.read([2], 0, "uops_retired") == "Error"
    counters.set_fault(2, 0, None)
    assert counters.read([2], 0, "uops_retired") == "7"


def test_each_package_has_a_folder_in_every_group_and_info_tells_the_events() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    for group in ("", "g/"):
        for package in ("00", "01"):
            assert _names(bench, f"{group}mon_data/mon_PERF_PKG_{package}") == {*ENERGY_EVENTS, *EXECUTION_EVENTS}
    features = bench.read("info/PERF_PKG_MON/mon_features").split()
    assert features == [*ENERGY_EVENTS, *EXECUTION_EVENTS]
    assert bench.read("info/PERF_PKG_MON/num_rmids") == "576\n"


def test_an_older_kernel_has_none_of_it() -> None:
    bench = Bench(replace(MACHINE, kernel=LINUX_6_12))
    assert _names(bench, "mon_data") == {"mon_L3_00", "mon_L3_01"}
    assert "PERF_PKG_MON" not in _names(bench, "info")


def test_a_package_without_a_cpu_has_no_folder() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    for online, names in ((False, {"mon_L3_00", "mon_PERF_PKG_00"}), (True, set(_names(bench, "mon_data")))):
        for cpu in (2, 3):
            bench.machine.set_online(cpu, online)
        assert _names(bench, "mon_data") == _names(bench, "g/mon_data") == names


def test_what_a_groups_task_does_is_counted_and_the_next_group_with_its_rmid_begins_with_that() -> None:
    """mon_add_all_files resets the bandwidth counters of an L3 alone."""
    assert MACHINE.monitoring is not None and MACHINE.packages is not None
    few = replace(MACHINE, packages=replace(MACHINE.packages, num_rmids=2))
    bench = Bench(few)
    bench.mkdir("mon_groups/m")
    bench.table.start(7)
    bench.table.usages["7"] = Usage(0.0, 1 << 20, 0)
    bench.write("mon_groups/m/tasks", "7\n")
    bench.now += 1
    assert bench.read(f"mon_groups/m/{CYCLES}") == "Unavailable\n"
    bench.now += 1
    bench.table.usages["7"] = Usage(1.0, 1 << 20, 0)
    counted = bench.read(f"mon_groups/m/{CYCLES}")
    assert int(counted) > 10**9
    bench.machine.rmdir("mon_groups/m")
    bench.now += 2
    bench.machine.hardware.counters.counter(1, 0).occupancy = 0
    bench.write("info/L3_MON/max_threshold_occupancy", "65536\n")
    bench.mkdir("mon_groups/n")
    assert bench.read(f"mon_groups/n/{CYCLES}") == counted
    with pytest.raises(OSError, match="No space"):
        bench.mkdir("mon_groups/o")
