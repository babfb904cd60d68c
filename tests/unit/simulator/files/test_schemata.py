# SPDX-License-Identifier: Apache-2.0
"""The schemata file takes and shows what the kernel's does."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.simulator.table import Bench, small
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.simulator.hardware.kernel_versions import LINUX_7_2
from vmqos.simulator.hardware.profiles import PROFILES

CASCADE_LAKE = small(PROFILES["cascade-lake"])
HASWELL_LIKE = replace(CASCADE_LAKE, l3=replace(CASCADE_LAKE.l3, min_cbm_bits=2, shareable_bits=0))  # type: ignore[type-var]


@pytest.fixture
def bench() -> Bench:
    bench = Bench(CASCADE_LAKE)
    bench.mkdir("g")
    return bench


def test_linux_6_12_pads_what_it_shows(bench: Bench) -> None:
    bench.write("g/schemata", "L3:0=3\nMB:1=50\n")
    assert bench.read("g/schemata") == "    MB:0=100;1= 50\n    L3:0=003;1=7ff\n"


def test_linux_7_2_does_not() -> None:
    bench = Bench(replace(CASCADE_LAKE, kernel=LINUX_7_2))
    bench.write("schemata", "L3:0=3\nMB:1=50\n")
    assert bench.read("schemata") == "    MB:0=100;1=50\n    L3:0=3;1=7ff\n"


def test_size_is_counted_in_whole_ways(bench: Bench) -> None:
    bench.write("g/schemata", "L3:0=3\n")
    assert bench.read("g/size") == "    MB:0=100;1=100\n    L3:0=3050402;1=16777211\n"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("L3:0=0x7\n", "L3:0=007;1=7ff"),
        ("L3:0=F;1=1\n", "L3:0=00f;1=001"),
        ("L3:0=3;\n", "L3:0=003;1=7ff"),
        (" L3 :0= 7 \n", "L3:0=007;1=7ff"),
        ("L3:00=3\n", "L3:0=003;1=7ff"),
        ("L3:0=7\r\n", "L3:0=007;1=7ff"),
        ("MB:0=51\n", "MB:0= 60;1=100"),
        ("MB:0=91;1= 30\n", "MB:0=100;1= 30"),
    ],
)
def test_a_line_may_be_written_in_several_ways(bench: Bench, data: str, shown: str) -> None:
    assert bench.write("g/schemata", data) == len(data)
    assert bench.status == "ok\n"
    assert shown in bench.read("g/schemata")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ("L3:0=f\nL3:0=3\n", "Duplicate domain 0\n"),
        ("L3:0=3;;1=3\n", "Missing '=' or non-numeric domain\n"),
        ("L3: 0=7\n", "Missing '=' or non-numeric domain\n"),
        ("L3:0=5\n", "The mask 5 has non-consecutive 1-bits\n"),
        ("L3:0=0\n", "Mask out of range\n"),
        ("L3:0=800\n", "Mask out of range\n"),
        ("L3:0=3x\n", "Non-hex character in the mask 3x\n"),
        ("L3:\n", "Missing 'L3' value\n"),
        ("\n", "Missing ':'\n"),
        ("L2:0=1\n", "Unknown or unsupported resource name 'L2'\n"),
        ("MB:0=9\n", "MB value 9 out of range [10,100]\n"),
        ("MB:0=abc\n", "Invalid MB value abc\n"),
        ("L3:0=3\nMB:0=400\n", "MB value 400 out of range [10,100]\n"),
        ("L3:99=3\n", "ok\n"),
    ],
)
def test_one_bad_line_refuses_them_all(bench: Bench, data: str, status: str) -> None:
    before = bench.read("g/schemata")
    with pytest.raises(OSError) as refused:
        bench.write("g/schemata", data)
    assert refused.value.errno == errno.EINVAL
    assert bench.status == status
    assert bench.read("g/schemata") == before


def test_a_missing_newline_leaves_the_status_of_before(bench: Bench) -> None:
    for data in ("nonsense\n", "L3:0=3"):
        with pytest.raises(OSError):
            bench.write("g/schemata", data)
    assert bench.status == "Missing ':'\n"


def test_a_machine_may_want_several_ways_in_a_row() -> None:
    bench = Bench(HASWELL_LIKE)
    with pytest.raises(OSError):
        bench.write("schemata", "L3:0=1\n")
    assert bench.status == "Need at least 2 bits in the mask\n"


def test_amd_takes_empty_masks_gaps_and_eighths_of_gigabytes() -> None:
    bench = Bench("milan")
    bench.write("schemata", "L3:0=0;1=5005\nMB:0=0;1=2048;2=17\n")
    assert bench.read("schemata") == ("    MB:0=   0;1=2048;2=  17;3=2048\n    L3:0=0000;1=5005;2=ffff;3=ffff\n")
    with pytest.raises(OSError):
        bench.write("schemata", "MB:0=2049\n")
    assert bench.status == "MB value 2049 out of range [0,2048]\n"


def test_with_cdp_code_and_data_have_masks_of_their_own() -> None:
    bench = Bench(CASCADE_LAKE, "cdp")
    bench.write("schemata", "L3CODE:0=3\nL3DATA:1=c\n")
    assert bench.read("schemata") == "    MB:0=100;1=100\nL3DATA:0=7ff;1=00c\nL3CODE:0=003;1=7ff\n"


def test_megabytes_per_second_are_in_force_even_if_a_later_line_is_refused() -> None:
    bench = Bench(CASCADE_LAKE, "mba_MBps")
    with pytest.raises(OSError):
        bench.write("schemata", "MB:0=500\nL3:0=0\n")
    assert bench.read("schemata").splitlines()[0] == "    MB:0=500;1=4294967295"


@given(st.integers(0, 0xFFF))
def test_a_mask_is_legal_here_exactly_if_the_client_thinks_so(bits: int) -> None:
    bench = Bench(CASCADE_LAKE)
    mask = CapacityBitmask(bits)
    legal = bits != 0 and not bits >> 11 and mask.is_contiguous
    try:
        bench.write("schemata", f"L3:0={bits:x}\n")
    except OSError:
        assert not legal
    else:
        assert legal
        assert f"0={bits:03x};" in bench.read("schemata")


@given(st.binary(max_size=40))
def test_no_data_can_break_it(data: bytes) -> None:
    bench = Bench("sapphire-rapids")
    try:
        bench.write("schemata", data.decode("latin-1"))
    except OSError as error:
        assert error.errno == errno.EINVAL
    assert bench.read("schemata").count("\n") == 3
