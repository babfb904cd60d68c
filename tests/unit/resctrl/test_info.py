# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.resctrl.info, on files with what real kernels say."""

import pytest

from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit, CacheResource, Monitoring
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.info import read_capabilities

L3 = {"cbm_mask": "7ff", "min_cbm_bits": 1, "num_closids": 16, "shareable_bits": 600, "sparse_masks": 0}
MB = {"bandwidth_gran": 10, "delay_linear": 1, "min_bandwidth": 10, "num_closids": 8, "thread_throttle_mode": "max"}
L3_MON = {
    "max_threshold_occupancy": 524288,
    "mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes",
    "num_rmids": 32,
}
SCHEMATA = "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"


@pytest.fixture
def machine(tmp_path):
    def make(schemata, **info):
        (tmp_path / "schemata").write_text(schemata)
        (tmp_path / "info").mkdir()
        (tmp_path / "info" / "last_cmd_status").write_text("ok\n")
        for resource, files in info.items():
            (tmp_path / "info" / resource).mkdir()
            for name, value in files.items():
                (tmp_path / "info" / resource / name).write_text(f"{value}\n")
        return Filesystem(str(tmp_path))

    return make


def test_an_intel_server_is_understood(machine):
    found = read_capabilities(
        machine(SCHEMATA, L3=L3 | {"bit_usage": "0=XXSSSSSSSSS;1=SSSSSSSSSSS"}, L3_MON=L3_MON, MB=MB)
    )
    mask, shareable = CapacityBitmask(0x7FF), CapacityBitmask(0x600)
    assert found.caches == {"L3": CacheResource("L3", 16, mask, 1, shareable, False, (0, 1))}
    assert found.bandwidths == {"MB": BandwidthResource("MB", 8, 10, 10, True, (0, 1))}
    assert found.monitoring == Monitoring(32, ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"), 524288)
    assert found.num_closids == 8


@pytest.mark.parametrize(
    ("files", "ways", "closids"),
    [
        ({}, None, 16),
        ({"io_alloc": "disabled"}, {}, 16),
        ({"io_alloc": "not supported"}, {}, 16),
        ({"io_alloc": "enabled", "io_alloc_cbm": "0=f00;1=3"}, {0: CapacityBitmask(0xF00), 1: CapacityBitmask(3)}, 15),
    ],
)
def test_ways_that_devices_are_confined_to_take_a_class(machine, files, ways, closids):
    found = read_capabilities(machine("L3:0=fff;1=fff\n", L3=L3 | {"cbm_mask": "fff"} | files))
    assert found.l3.io_alloc == ways
    assert found.num_closids == closids
    assert found.l3.filled_by_devices[0] == CapacityBitmask(0xF00 if ways else 0x600)
    assert found.l3.filled_by_devices[1] == CapacityBitmask(0x603 if ways else 0x600)


def test_ways_for_devices_that_are_switched_off_between_two_reads_are_none(machine, tmp_path):
    fs = machine("L3:0=7ff\n", L3=L3 | {"io_alloc": "enabled"})
    # Like the kernel's file then, a directory is there and can't be read.
    (tmp_path / "info" / "L3" / "io_alloc_cbm").mkdir()
    assert read_capabilities(fs).l3.io_alloc == {}


def test_with_cdp_devices_take_one_class_and_not_two(machine):
    files = L3 | {"num_closids": 8, "io_alloc": "enabled", "io_alloc_cbm": "0=3"}
    assert read_capabilities(machine("L3CODE:0=7ff\nL3DATA:0=7ff\n", L3CODE=files, L3DATA=files)).num_closids == 7


def test_an_amd_server_is_understood(machine):
    features = "llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\nmbm_local_bytes\nmbm_local_bytes_config"
    found = read_capabilities(
        machine(
            "    MB:0=2048;1=2048;2=2048\n  SMBA:0=2048;1=2048;2=2048\n    L3:0=ffff;1=ffff;2=ffff\n",
            L3={"cbm_mask": "ffff", "min_cbm_bits": 0, "num_closids": 16, "shareable_bits": 0, "sparse_masks": 1},
            L3_MON={
                "max_threshold_occupancy": 0,
                "mbm_local_bytes_config": "0=0x15;1=0x15;2=0x15",
                "mbm_total_bytes_config": "0=0x7f;1=0x7f;2=0x7f",
                "mon_features": features,
                "num_rmids": 64,
            },
            MB={"bandwidth_gran": 1, "delay_linear": 0, "min_bandwidth": 0, "num_closids": 16},
            SMBA={"bandwidth_gran": 1, "delay_linear": 0, "min_bandwidth": 0, "num_closids": 16},
        )
    )
    assert found.l3.sparse_masks
    assert found.l3.min_cbm_bits == 0
    assert found.l3.cache_ids == (0, 1, 2)
    assert set(found.bandwidths) == {"MB", "SMBA"}
    assert not found.bandwidths["MB"].delay_linear
    assert {bandwidth.unit for bandwidth in found.bandwidths.values()} == {BandwidthUnit.EIGHTH_GBPS}
    assert found.monitoring.events == ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")


def test_code_and_data_are_resources_of_their_own(machine):
    found = read_capabilities(
        machine(
            "L2DATA:0=ff;1=ff\nL2CODE:0=ff;1=ff\nL3DATA:0=7ff\nL3CODE:0=7ff\n",
            L2CODE=L3,
            L2DATA=L3,
            L3CODE=L3 | {"num_closids": 4},
            L3DATA=L3 | {"num_closids": 4},
        )
    )
    assert set(found.caches) == {"L2CODE", "L2DATA", "L3CODE", "L3DATA"}
    assert found.caches["L2DATA"].cache_ids == (0, 1)
    assert found.l3 is not None and found.l3.name == "L3" and found.split_levels == {2, 3}
    assert found.num_closids == 4


def test_an_old_kernel_without_the_later_files_is_understood(machine):
    old = {name: value for name, value in L3.items() if name not in ("shareable_bits", "sparse_masks")}
    found = read_capabilities(machine("L3:0=7ff\n", L3=old))
    assert found.l3.shareable_bits == CapacityBitmask(0)
    assert not found.l3.sparse_masks


def test_what_a_later_kernel_adds_is_passed_over(machine):
    found = read_capabilities(
        machine(
            SCHEMATA + "   NEW:0=1\n",
            L3=L3 | {"io_alloc": "disabled", "io_alloc_cbm": "0=7ff;1=7ff"},
            L3_MON=L3_MON | {"mbm_assign_mode": "[default]", "num_mbm_cntrs": "0=32;1=32"},
            PERF_PKG_MON={"mon_features": "core_energy", "num_rmids": 576},
            NEW={"num_closids": 2, "levels": 3},
        )
    )
    assert set(found.caches) == {"L3"}
    assert found.bandwidths == {}
    assert found.monitoring.num_rmids == 32
    assert found.num_closids == 16


@pytest.mark.parametrize(("in_packages", "groups"), [(576, 32), (24, 24)])
def test_there_are_as_many_groups_as_the_poorer_kind_of_counters_has_rmids(machine, in_packages, groups):
    packages = {"mon_features": "core_energy", "num_rmids": in_packages}
    found = read_capabilities(machine(SCHEMATA, L3=L3, L3_MON=L3_MON, PERF_PKG_MON=packages))
    assert found.monitoring.num_rmids == groups


def test_a_machine_that_only_monitors_is_understood(machine):
    found = read_capabilities(machine("", L3_MON=L3_MON))
    assert found.caches == {}
    assert found.num_closids == 1
    assert found.monitoring.num_rmids == 32


def test_a_machine_that_only_allocates_has_no_monitoring(machine):
    assert read_capabilities(machine("L3:0=7ff\n", L3=L3)).monitoring is None


@pytest.mark.parametrize(("file", "text"), [("cbm_mask", "many"), ("num_closids", "0x10"), ("min_cbm_bits", "")])
def test_a_file_that_makes_no_sense_is_told_with_its_path_and_text(machine, file, text):
    with pytest.raises(exceptions.UnexpectedContent) as caught:
        read_capabilities(machine("L3:0=7ff\n", L3=L3 | {file: text}))
    assert f"info/L3/{file}" in str(caught.value)
    assert repr(text) in str(caught.value)


def test_a_resctrl_that_was_unmounted_is_told(tmp_path):
    with pytest.raises(exceptions.Vanished):
        read_capabilities(Filesystem(str(tmp_path)))
