# SPDX-License-Identifier: Apache-2.0
"""Every profile is a machine that could exist."""

from __future__ import annotations

import pytest

from tests.unit.simulator.table import Bench
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.hardware.registers import AMD_BANDWIDTH, AMD_SLOW_BANDWIDTH


def test_the_promised_profiles_are_there() -> None:
    intel = ["cascade-lake", "broadwell", "sapphire-rapids", "sapphire-rapids-snc2", "clearwater-forest"]
    amd, arm = ["milan", "milan-2s", "genoa"], ["mpam"]
    assert list(PROFILES) == [*intel, *amd, *arm, "minimal"]


@pytest.mark.parametrize(("name", "count"), [("milan-2s", 16), ("genoa", 24)])
def test_a_machine_of_many_caches_has_each_of_them_in_every_line(name: str, count: int) -> None:
    bench = Bench(name)
    lines = dict(line.strip().split(":") for line in bench.read("schemata").splitlines())
    assert {len(values.split(";")) for values in lines.values()} == {count}
    bench.mkdir("g")
    bench.write("g/schemata", "L3:" + ";".join(f"{cache}={cache:x}" for cache in range(count)) + "\n")
    found = next(line for line in bench.read("g/schemata").splitlines() if "L3:" in line).partition(":")[2]
    assert [int(value.partition("=")[2], 16) for value in found.split(";")] == list(range(count))


def test_bandwidth_of_slow_memory_is_a_line_and_a_register_of_its_own() -> None:
    bench = Bench("genoa")
    assert bench.read("info/SMBA/delay_linear") == "0\n"
    bench.write("schemata", "SMBA:3=8\n")
    assert "SMBA:0=2048;1=2048;2=2048;3=8;" in bench.read("schemata")
    registers = bench.machine.hardware.registers
    assert registers.value(3, 3, AMD_SLOW_BANDWIDTH) == 8 and registers.value(3, 3, AMD_BANDWIDTH) == 2048


def test_arms_machine_counts_no_local_traffic_and_shares_every_way_with_devices() -> None:
    """``mpam_resctrl_control_init`` in the kernel's drivers/resctrl/mpam_resctrl.c."""
    bench = Bench("mpam")
    assert bench.read("info/L3_MON/mon_features") == "llc_occupancy\nmbm_total_bytes\n"
    assert {node.name for node in bench.machine.find("mon_data/mon_L3_00")} == {"llc_occupancy", "mbm_total_bytes"}  # type: ignore[attr-defined]
    assert bench.read("info/L3/shareable_bits") == "ffff\n"
    bench.write("schemata", "L3:0=f00f\n")
    with pytest.raises(OSError, match="Invalid"):
        bench.write("schemata", "L3:0=0\n")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_makes_sense(name: str) -> None:
    profile = PROFILES[name]
    assert profile.name == name and profile.description
    for cache in (profile.l3, profile.l2):
        if cache:
            assert not cache.shareable_bits >> cache.ways
            assert cache.min_cbm_bits <= cache.ways <= 32
            assert all(one.size >= cache.ways for one in profile.topology.caches(cache.level))
    assert 0 < profile.threshold <= profile.threshold_limit


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_can_be_mounted_and_used(name: str) -> None:
    bench = Bench(name)
    bench.mkdir("g")
    bench.write("g/schemata", "L3:0=3\n")
    assert bench.status == "ok\n"
    assert bench.read("g/size")
