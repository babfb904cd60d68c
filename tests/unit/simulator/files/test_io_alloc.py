# SPDX-License-Identifier: Apache-2.0
"""Ways for devices, by ``fs/resctrl/ctrlmondata.c`` (``resctrl_io_alloc_*``), as Linux 7.2 answers."""

from __future__ import annotations

import errno

import pytest

from tests.unit.simulator.table import Bench
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.hardware.registers import L3_EXTENDED_CONFIGURATION, mask_register

FILE, CBM = "info/L3/io_alloc", "info/L3/io_alloc_cbm"


@pytest.fixture
def bench() -> Bench:
    return Bench("genoa")


def refused(bench: Bench, path: str, text: str, error: int, status: str) -> None:
    with pytest.raises(OSError) as caught:
        bench.write(path, text)
    assert (caught.value.errno, bench.status) == (error, status)


def masks(bench: Bench, text: str) -> dict[int, int]:
    return {int(pair.split("=")[0]): int(pair.split("=")[1], 16) for pair in text.strip().split(";")}


@pytest.mark.parametrize("name", PROFILES)
def test_the_files_are_there_where_hardware_and_kernel_can(name: str) -> None:
    found = {node.name for node in Bench(name).machine.find("info/L3")}  # type: ignore[attr-defined]
    assert ({"io_alloc", "io_alloc_cbm"} <= found) is (name == "genoa")


def test_it_is_disabled_at_first_and_says_no_masks(bench: Bench) -> None:
    assert bench.read(FILE) == "disabled\n"
    with pytest.raises(OSError) as caught:
        bench.read(CBM)
    assert caught.value.errno == errno.EINVAL and bench.status == "io_alloc is not enabled on L3\n"
    refused(bench, CBM, "0=f\n", errno.EINVAL, "io_alloc is not enabled on L3\n")


@pytest.mark.parametrize(
    ("word", "state"),
    [("1\n", "enabled"), ("on", "enabled"), ("Y\n", "enabled"), ("off\n", "disabled"), ("enable\n", "enabled")],
)
def test_it_is_switched_by_the_kernels_words(bench: Bench, word: str, state: str) -> None:
    bench.write(FILE, word)
    assert bench.read(FILE) == f"{state}\n"


@pytest.mark.parametrize("word", ["\n", "2\n", "o\n"])
def test_other_words_are_refused(bench: Bench, word: str) -> None:
    with pytest.raises(OSError) as caught:
        bench.write(FILE, word)
    assert caught.value.errno == errno.EINVAL


def test_it_takes_the_highest_class(bench: Bench) -> None:
    bench.write(FILE, "1\n")
    for number in range(14):
        bench.mkdir(f"g{number}")
    with pytest.raises(OSError) as caught:
        bench.mkdir("late")
    assert caught.value.errno == errno.ENOSPC and bench.status == "Out of CLOSIDs\n"
    bench.write(FILE, "0\n")
    bench.mkdir("late")


def test_a_class_that_a_group_has_is_not_taken_from_it(bench: Bench) -> None:
    for number in range(15):
        bench.mkdir(f"g{number}")
    refused(bench, FILE, "1\n", errno.ENOSPC, "CLOSID (ctrl_hw_id) 15 for io_alloc is used by g14 group\n")
    assert bench.read(FILE) == "disabled\n"


def test_devices_get_every_way_that_no_exclusive_group_has(bench: Bench) -> None:
    bench.mkdir("g")
    bench.write("schemata", "L3:0=fff0\n")
    bench.write("g/schemata", "L3:0=f;" + ";".join(f"{cache}=0" for cache in range(1, 24)) + "\n")
    bench.write("g/mode", "exclusive\n")
    bench.write(FILE, "1\n")
    found = masks(bench, bench.read(CBM))
    assert found[0] == 0xFFF0 and {found[cache] for cache in range(1, 24)} == {0xFFFF}


def test_masks_are_written_cache_by_cache_and_reach_the_highest_classes_register(bench: Bench) -> None:
    bench.write(FILE, "1\n")
    bench.write(CBM, "1=f00f;3=3\n")
    found = masks(bench, bench.read(CBM))
    assert (found[0], found[1], found[2], found[3]) == (0xFFFF, 0xF00F, 0xFFFF, 3)
    registers = bench.machine.hardware.registers
    assert registers.value(3, 1, mask_register(3, 15)) == 0xF00F
    assert registers.value(3, 1, L3_EXTENDED_CONFIGURATION) == 2
    bench.write(FILE, "0\n")
    assert registers.value(3, 1, L3_EXTENDED_CONFIGURATION) == 0


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("0=10000\n", "Mask out of range\n"),
        ("0=g\n", "Non-hex character in the mask g\n"),
        ("L3:0=1\n", "Missing '=' or non-numeric domain\n"),
        ("0\n", "Missing '=' or non-numeric domain\n"),
        ("0=1;0=2\n", "Duplicate domain 0\n"),
        ("99=1\n", "Invalid domain 99\n"),
    ],
)
def test_masks_are_checked_as_those_of_groups_and_all_or_none_are_taken(bench: Bench, text: str, status: str) -> None:
    bench.write(FILE, "1\n")
    refused(bench, CBM, text, errno.EINVAL, status)
    assert set(masks(bench, bench.read(CBM)).values()) == {0xFFFF}


def test_ways_of_devices_are_shown_as_the_hardwares(bench: Bench) -> None:
    bench.write(FILE, "1\n")
    bench.write(CBM, "0=3\n")
    bench.write("schemata", "L3:0=fffe\n")
    usage = bench.read("info/L3/bit_usage").split(";")
    assert usage[0] == "0=" + "S" * 14 + "XH"


def test_a_group_on_ways_of_devices_can_not_be_exclusive(bench: Bench) -> None:
    bench.mkdir("g")
    bench.write("schemata", ";".join(["L3:0=ff00", *(f"{cache}=ff00" for cache in range(1, 24))]) + "\n")
    bench.write("g/schemata", ";".join(["L3:0=f", *(f"{cache}=f" for cache in range(1, 24))]) + "\n")
    bench.write(FILE, "1\n")
    bench.write(CBM, "5=1\n")
    refused(bench, "g/mode", "exclusive\n", errno.EINVAL, "Schemata overlaps\n")


def test_with_cdp_code_and_data_of_devices_are_the_same() -> None:
    bench = Bench("genoa", "cdp")
    bench.write("info/L3CODE/io_alloc", "1\n")
    bench.write("info/L3DATA/io_alloc_cbm", "2=ff\n")
    assert bench.read("info/L3CODE/io_alloc_cbm") == bench.read("info/L3DATA/io_alloc_cbm")
    assert masks(bench, bench.read("info/L3CODE/io_alloc_cbm"))[2] == 0xFF
    registers = bench.machine.hardware.registers
    assert [registers.value(3, 2, mask_register(3, index)) for index in (14, 15)] == [0xFF, 0xFF]


def test_umount_leaves_it_on_and_gives_the_class_back(bench: Bench) -> None:
    bench.write(FILE, "1\n")
    bench.machine.unmount()
    bench.machine.mount()
    assert bench.read(FILE) == "enabled\n"
    for number in range(15):
        bench.mkdir(f"g{number}")
    assert set(masks(bench, bench.read(CBM)).values()) == {0xFFFF}
