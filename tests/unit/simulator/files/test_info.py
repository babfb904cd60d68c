# SPDX-License-Identifier: Apache-2.0
"""``info`` tells what the machine can do."""

from __future__ import annotations

import errno

import pytest

from tests.unit.simulator.table import Bench
from vmqos.simulator.kernel.tree import Directory


def _names(bench: Bench, path: str) -> list[str]:
    node = bench.machine.find(path)
    assert isinstance(node, Directory)
    return sorted(child.name for child in node)


@pytest.mark.parametrize(
    ("profile", "options", "names"),
    [
        ("cascade-lake", "", ["L3", "L3_MON", "MB", "last_cmd_status"]),
        ("cascade-lake", "cdp", ["L3CODE", "L3DATA", "L3_MON", "MB", "last_cmd_status"]),
        ("sapphire-rapids", "cdpl2", ["L2CODE", "L2DATA", "L3", "L3_MON", "MB", "last_cmd_status"]),
        ("broadwell", "", ["L3", "L3_MON", "last_cmd_status"]),
    ],
)
def test_each_line_of_schemata_has_its_directory(profile: str, options: str, names: list[str]) -> None:
    assert _names(Bench(profile, options), "info") == names


@pytest.mark.parametrize(
    ("profile", "path", "content"),
    [
        ("cascade-lake", "L3/cbm_mask", "7ff\n"),
        ("cascade-lake", "L3/shareable_bits", "600\n"),
        ("cascade-lake", "L3/num_closids", "16\n"),
        ("cascade-lake", "MB/num_closids", "8\n"),
        ("cascade-lake", "L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
        ("sapphire-rapids", "L2/sparse_masks", "1\n"),
        ("sapphire-rapids", "L3_MON/mbm_assign_mode", "[default]\n"),
        ("milan", "L3/min_cbm_bits", "0\n"),
        ("milan", "MB/delay_linear", "0\n"),
        ("milan", "L3_MON/mbm_local_bytes_config", "0=0x15;1=0x15;2=0x15;3=0x15\n"),
    ],
)
def test_a_file_shows_what_the_profile_says(profile: str, path: str, content: str) -> None:
    assert Bench(profile).read(f"info/{path}") == content


@pytest.mark.parametrize(
    ("mode", "status"), [("mbm_event", "mbm_event mode is not supported\n"), ("x", "Unsupported assign mode\n")]
)
def test_another_mode_of_assignment_is_refused(mode: str, status: str) -> None:
    bench = Bench("sapphire-rapids")
    with pytest.raises(OSError):
        bench.write("info/L3_MON/mbm_assign_mode", f"{mode}\n")
    assert bench.status == status


def test_cdp_halves_the_classes() -> None:
    assert Bench("cascade-lake", "cdp").read("info/L3CODE/num_closids") == "8\n"


def test_unused_ways_and_ways_of_devices_are_told_apart() -> None:
    bench = Bench("cascade-lake")
    bench.write("schemata", "L3:0=f\n")
    assert bench.read("info/L3/bit_usage") == "0=HH00000SSSS;1=XXSSSSSSSSS\n"


def test_the_threshold_is_rounded_to_the_hardwares_unit() -> None:
    bench = Bench("broadwell")
    path = "info/L3_MON/max_threshold_occupancy"
    bench.write(path, "100000\n")
    assert bench.read(path) == "65536\n"
    for data, code in (("99999999999\n", errno.ERANGE), ("x\n", errno.EINVAL), ("-1\n", errno.EINVAL)):
        with pytest.raises(OSError) as refused:
            bench.write(path, data)
        assert refused.value.errno == code
    with pytest.raises(OSError) as refused:
        bench.write(path, f"{(25 << 20) + 1}\n")
    assert refused.value.errno == errno.EINVAL


def test_amd_lets_the_traffic_that_is_counted_be_chosen() -> None:
    bench = Bench("milan")
    path = "info/L3_MON/mbm_total_bytes_config"
    bench.write(path, "0=0x3; 2=1\n")
    assert bench.read(path) == "0=0x03;1=0x7f;2=0x01;3=0x7f\n"
    for data, status in (
        ("0=80\n", "Invalid event configuration: max valid mask is 0x7f\n"),
        ("a=1\n", "Missing '=' or non-numeric domain id\n"),
        ("0\n", "Non-numeric event configuration value\n"),
        ("9=1\n", "ok\n"),
    ):
        with pytest.raises(OSError):
            bench.write(path, data)
        assert bench.status == status
