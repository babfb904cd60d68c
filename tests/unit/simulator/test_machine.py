# SPDX-License-Identifier: Apache-2.0
"""A machine outlives its mounts."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES

MACHINE = small(PROFILES["cascade-lake"])


def test_umount_forgets_groups_masks_and_assignments() -> None:
    bench = Bench(MACHINE)
    bench.table.start(10)
    bench.mkdir("g")
    bench.write("g/tasks", "10\n")
    bench.write("schemata", "L3:0=7\nMB:0=10\n")
    bench.machine.unmount()
    with pytest.raises(OSError) as refused:
        bench.machine.find("")
    assert refused.value.errno == errno.ENODEV
    bench.machine.mount("")
    assert bench.read("schemata") == "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"
    assert bench.read("tasks") == "10\n"
    with pytest.raises(OSError):
        bench.machine.find("g")


def test_the_threshold_and_the_limbo_stay() -> None:
    bench = Bench("minimal")
    bench.write("info/L3_MON/max_threshold_occupancy", "65536\n")
    for number in range(7):
        bench.mkdir(f"mon_groups/m{number}")
    bench.machine.unmount()
    bench.machine.mount("")
    assert bench.read("info/L3_MON/max_threshold_occupancy") == "65536\n"
    with pytest.raises(OSError) as refused:
        bench.mkdir("g")
    assert refused.value.errno == errno.EBUSY


def test_a_cache_without_cpus_disappears_and_comes_back_fresh() -> None:
    bench = Bench(MACHINE)
    bench.mkdir("g")
    bench.write("g/schemata", "L3:1=3\n")
    for cpu in (2, 3):
        bench.machine.set_online(cpu, False)
    assert bench.read("g/schemata") == "    MB:0=100\n    L3:0=7ff\n"
    with pytest.raises(OSError) as refused:
        bench.machine.find("g/mon_data/mon_L3_01")
    assert refused.value.errno == errno.ENOENT
    bench.machine.set_online(2, True)
    assert bench.read("g/schemata") == "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"
    assert bench.read("g/mon_data/mon_L3_01/llc_occupancy") == "0\n"
    assert bench.read("cpus_list") == "0-2\n"


def test_debug_shows_the_hardwares_numbers() -> None:
    bench = Bench(MACHINE, "debug")
    bench.mkdir("g")
    bench.mkdir("g/mon_groups/m")
    read = {path: bench.read(path) for path in ("ctrl_hw_id", "mon_hw_id", "g/ctrl_hw_id", "g/mon_hw_id")}
    assert read == {"ctrl_hw_id": "0\n", "mon_hw_id": "0\n", "g/ctrl_hw_id": "1\n", "g/mon_hw_id": "1\n"}
    assert bench.read("g/mon_groups/m/mon_hw_id") == "2\n"


def test_the_watched_event_can_be_chosen_on_the_newer_kernel() -> None:
    bench = Bench("sapphire-rapids", "mba_MBps")
    assert bench.read("mba_MBps_event") == "mbm_local_bytes\n"
    bench.write("mba_MBps_event", "mbm_total_bytes\n")
    assert bench.read("mba_MBps_event") == "mbm_total_bytes\n"
    with pytest.raises(OSError):
        bench.write("mba_MBps_event", "llc_occupancy\n")
    assert bench.status == "Unsupported event id 'llc_occupancy'\n"


def test_a_machine_may_only_monitor() -> None:
    bench = Bench(replace(MACHINE, l3=None, bandwidth=None))
    assert (bench.read("schemata"), bench.read("tasks")) == ("", "")
    bench.mkdir("mon_groups/m")
    with pytest.raises(OSError) as refused:
        bench.mkdir("g")
    assert refused.value.errno == errno.EPERM


def test_a_machine_may_only_allocate() -> None:
    bench = Bench(replace(MACHINE, monitoring=None))
    bench.mkdir("g")
    for path in ("mon_groups", "g/mon_data", "info/L3_MON"):
        with pytest.raises(OSError) as refused:
            bench.machine.find(path)
        assert refused.value.errno == errno.ENOENT
