# SPDX-License-Identifier: Apache-2.0
"""Sockets that are divided into nodes: each counts its part, and the cache's files add them up."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import ALL_EVENTS, PROFILES
from vmqos.simulator.hardware.tasks import Usage
from vmqos.simulator.kernel.tree import Directory

SNC = PROFILES["sapphire-rapids-snc2"]
_SMALL = small(SNC)
MACHINE = replace(_SMALL, topology=replace(_SMALL.topology, nodes_per_l3=2))


def _folders(bench: Bench, path: str) -> set[str]:
    folder = bench.machine.find(path)
    assert isinstance(folder, Directory)
    return {node.name for node in folder if isinstance(node, Directory)}


def test_nodes_are_numbered_through_the_machine_and_lie_within_their_cache() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    for group in ("", "g/"):
        assert _folders(bench, f"{group}mon_data") == {"mon_L3_00", "mon_L3_01"}
        assert _folders(bench, f"{group}mon_data/mon_L3_00") == {"mon_sub_L3_00", "mon_sub_L3_01"}
        assert _folders(bench, f"{group}mon_data/mon_L3_01") == {"mon_sub_L3_02", "mon_sub_L3_03"}
        for event in ALL_EVENTS:
            assert bench.read(f"{group}mon_data/mon_L3_01/mon_sub_L3_03/{event}").strip().isdigit()


def test_the_nodes_share_the_rmids_and_the_unit_of_the_counter() -> None:
    whole, divided = PROFILES["sapphire-rapids"].monitoring, SNC.monitoring
    assert whole is not None and divided is not None
    assert (divided.num_rmids, divided.scale) == (whole.num_rmids // 2, whole.scale // 2)
    assert Bench(MACHINE).read("info/L3_MON/num_rmids") == "128\n"


def test_a_caches_counter_is_the_sum_of_its_nodes_that_can_be_read() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    counters, rmid, unit = bench.machine.hardware.counters, 1, 30720
    counters.counter(rmid, 0).occupancy, counters.counter(rmid, 1).occupancy = 2 * unit, 3 * unit
    path = "g/mon_data/mon_L3_00"
    assert bench.read(f"{path}/llc_occupancy") == f"{5 * unit}\n"
    assert bench.read(f"{path}/mon_sub_L3_00/llc_occupancy") == f"{2 * unit}\n"
    assert bench.read(f"{path}/mon_sub_L3_01/llc_occupancy") == f"{3 * unit}\n"
    counters.set_fault(rmid, 0, "Unavailable")
    assert bench.read(f"{path}/llc_occupancy") == f"{3 * unit}\n"
    assert bench.read(f"{path}/mon_sub_L3_00/llc_occupancy") == "Unavailable\n"


def test_a_task_is_counted_on_the_node_that_it_runs_on() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    bench.table.start(7)
    bench.table.usages["7"] = Usage(0.0, 1 << 20, 3)
    bench.write("g/tasks", "7\n")
    bench.now += 1
    bench.read("g/mon_data/mon_L3_01/llc_occupancy")
    bench.now += 1
    bench.table.usages["7"] = Usage(1.0, 1 << 20, 3)
    path = "g/mon_data/mon_L3_01"
    total = int(bench.read(f"{path}/mbm_total_bytes"))
    assert total > 0
    assert int(bench.read(f"{path}/mon_sub_L3_03/mbm_total_bytes")) == total
    assert bench.read(f"{path}/mon_sub_L3_02/mbm_total_bytes") == "0\n"


def test_a_node_without_a_cpu_goes_and_with_the_last_one_the_cache() -> None:
    bench = Bench(MACHINE)
    bench.machine.set_online(2, False)
    assert _folders(bench, "mon_data/mon_L3_01") == {"mon_sub_L3_03"}
    bench.machine.set_online(3, False)
    assert _folders(bench, "mon_data") == {"mon_L3_00"}
    bench.machine.set_online(3, True)
    assert _folders(bench, "mon_data/mon_L3_01") == {"mon_sub_L3_03"}
    bench.machine.set_online(2, True)
    assert _folders(bench, "mon_data/mon_L3_01") == {"mon_sub_L3_02", "mon_sub_L3_03"}


def test_an_rmid_leaves_limbo_once_every_node_has_seen_its_lines_gone() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    rmids = bench.machine.hardware.rmids
    bench.machine.hardware.counters.counter(1, 3).occupancy = bench.machine.hardware.threshold
    bench.machine.rmdir("g")
    bench.now += 2
    bench.machine.hardware.check_limbo()
    assert rmids.in_limbo == (1,)
    bench.machine.hardware.counters.counter(1, 3).occupancy = 0
    bench.now += 2
    bench.machine.hardware.check_limbo()
    assert rmids.in_limbo == ()
