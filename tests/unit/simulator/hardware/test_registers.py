# SPDX-License-Identifier: Apache-2.0
"""What the hardware is told, register by register."""

from __future__ import annotations

import errno

import pytest

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.hardware.registers import RegisterWrite


def bench(profile: str = "cascade-lake", options: str = "") -> Bench:
    """A machine of two sockets with the CPUs 0 and 1, 2 and 3."""
    return Bench(small(PROFILES[profile]), options)


def writes_of(one: Bench, path: str, data: str) -> list[RegisterWrite]:
    with one.machine.hardware.registers.watched() as writes:
        one.write(path, data)
    return writes


def test_at_power_on_every_class_has_everything() -> None:
    registers = bench().machine.hardware.registers
    assert {registers.read(cpu, 0xC90 + closid) for cpu in range(4) for closid in range(16)} == {0x7FF}
    assert {registers.read(cpu, 0xD50 + closid) for cpu in range(4) for closid in range(8)} == {0}


def test_a_mask_goes_into_its_classs_register_of_its_cache() -> None:
    one = bench()
    one.mkdir("g")
    assert writes_of(one, "g/schemata", "L3:1=3\n") == [RegisterWrite(3, 1, 0xC91, 3)]
    assert [one.machine.read_register(cpu, 0xC91) for cpu in range(4)] == [0x7FF, 0x7FF, 3, 3]


def test_what_is_in_force_is_not_written_again() -> None:
    one = bench()
    assert writes_of(one, "schemata", "L3:0=7ff;1=7ff\nMB:0=100\n") == []


def test_a_refused_write_reaches_no_register() -> None:
    one = bench()
    with one.machine.hardware.registers.watched() as writes, pytest.raises(OSError):
        one.write("schemata", "L3:0=3\nMB:0=1\n")
    assert writes == []


def test_intels_bandwidth_is_what_is_held_back() -> None:
    assert writes_of(bench(), "schemata", "MB:0=70\n") == [RegisterWrite(3, 0, 0xD50, 30)]


def test_amds_bandwidth_is_what_is_granted() -> None:
    one = bench("milan")
    assert one.machine.read_register(0, 0xC000_0200) == 2048
    assert writes_of(one, "schemata", "MB:1=16\n") == [RegisterWrite(3, 1, 0xC000_0200, 16)]


def test_an_l2_has_registers_of_its_own() -> None:
    one = bench("sapphire-rapids")
    assert writes_of(one, "schemata", "L2:2=5\n") == [RegisterWrite(2, 2, 0xD10, 5)]


def test_with_cdp_a_class_has_one_register_for_data_and_one_for_code() -> None:
    one = bench(options="cdp")
    assert [one.machine.read_register(cpu, 0xC81) for cpu in (0, 2)] == [1, 1]
    one.mkdir("g")
    assert writes_of(one, "g/schemata", "L3DATA:0=3\nL3CODE:0=c\n") == [
        RegisterWrite(3, 0, 0xC92, 3),
        RegisterWrite(3, 0, 0xC93, 0xC),
    ]


def test_rmdir_writes_nothing_and_umount_everything() -> None:
    one = bench(options="cdp")
    one.mkdir("g")
    one.write("g/schemata", "L3DATA:0=3\nMB:0=10\n")
    registers = one.machine.hardware.registers
    with registers.watched() as writes:
        one.machine.rmdir("g")
    assert writes == []
    assert one.machine.read_register(0, 0xC92) == 3
    one.machine.unmount()
    assert one.machine.read_register(0, 0xC92) == 0x7FF
    assert one.machine.read_register(0, 0xD51) == 0
    assert one.machine.read_register(0, 0xC81) == 0


def test_the_choice_of_an_events_traffic_is_a_register() -> None:
    one = bench("milan")
    path = "info/L3_MON/mbm_local_bytes_config"
    assert writes_of(one, path, "1=0x15\n") == []
    assert writes_of(one, path, "1=0x33\n") == [RegisterWrite(3, 1, 0xC000_0401, 0x33)]
    assert one.read(path) == "0=0x15;1=0x33\n"


def test_a_cache_that_comes_back_gives_every_class_everything() -> None:
    one = bench()
    one.write("schemata", "L3:1=3\n")
    for cpu in (2, 3):
        one.machine.set_online(cpu, False)
    for cpu in (2, 3):
        one.machine.set_online(cpu, True)
    assert one.machine.read_register(2, 0xC90) == 0x7FF


def test_a_register_that_a_cpu_does_not_have_cannot_be_read() -> None:
    with pytest.raises(OSError) as refused:
        bench("broadwell").machine.read_register(0, 0xD50)
    assert refused.value.errno == errno.EIO
