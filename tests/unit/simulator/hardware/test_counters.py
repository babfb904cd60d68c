# SPDX-License-Identifier: Apache-2.0
"""Counters are sums, in the hardware's units, unless they cannot be read."""

from __future__ import annotations

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES

MACHINE = small(PROFILES["broadwell"])
OCCUPANCY = "mon_data/mon_L3_00/llc_occupancy"
TOTAL = "mon_data/mon_L3_00/mbm_total_bytes"


def _rmid(bench: Bench, name: str) -> int:
    return next(group.rmid for group in bench.machine.mounted.every_group() if group.directory.name == name)


def test_a_control_group_counts_for_its_monitoring_groups_too() -> None:
    bench = Bench(MACHINE)
    for path in ("g", "g/mon_groups/m"):
        bench.mkdir(path)
    for name in ("g", "m"):
        bench.machine.hardware.counters.counter(_rmid(bench, name), 0).occupancy = 3 * 65536 + 1
    assert bench.read(f"g/{OCCUPANCY}") == f"{6 * 65536}\n"
    assert bench.read(f"g/mon_groups/m/{OCCUPANCY}") == f"{3 * 65536}\n"
    assert bench.read("g/mon_data/mon_L3_01/llc_occupancy") == "0\n"


def test_a_new_group_counts_from_0_whatever_its_rmid_had_counted() -> None:
    bench = Bench("minimal")
    bench.mkdir("mon_groups/m")
    counter = bench.machine.hardware.counters.counter(_rmid(bench, "m"), 0)
    counter.total = 10 * 65536
    assert bench.read(f"mon_groups/m/{TOTAL}") == f"{10 * 65536}\n"
    bench.machine.rmdir("mon_groups/m")
    bench.now += 2
    for number in range(7):
        bench.mkdir(f"mon_groups/m{number}")
        assert bench.read(f"mon_groups/m{number}/{TOTAL}") == "0\n"


def test_a_counter_may_be_unreadable_in_one_cache() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    counters, rmid = bench.machine.hardware.counters, _rmid(bench, "g")
    counters.set_fault(rmid, 0, "Unavailable")
    assert bench.read(f"g/{TOTAL}") == "Unavailable\n"
    assert bench.read("g/mon_data/mon_L3_01/mbm_total_bytes") == "0\n"
    counters.set_fault(rmid, 0, None)
    assert bench.read(f"g/{TOTAL}") == "0\n"


def test_a_sum_leaves_out_what_cannot_be_read() -> None:
    bench = Bench(MACHINE)
    for path in ("g", "g/mon_groups/m"):
        bench.mkdir(path)
    counters = bench.machine.hardware.counters
    counters.set_fault(_rmid(bench, "g"), 0, "Error")
    counters.counter(_rmid(bench, "m"), 0).occupancy = 65536
    assert bench.read(f"g/{OCCUPANCY}") == "65536\n"
