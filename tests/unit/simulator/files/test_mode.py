# SPDX-License-Identifier: Apache-2.0
"""A group is exclusive only where nobody else has its ways."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from tests.unit.simulator.table import Bench, small
from vmqos.simulator.hardware.profiles import PROFILES

CASCADE_LAKE = small(PROFILES["cascade-lake"])


@pytest.fixture
def bench() -> Bench:
    """Group e has ways of its own; group o has others."""
    bench = Bench(CASCADE_LAKE)
    bench.mkdir("e")
    bench.mkdir("o")
    bench.write("schemata", "L3:0=7f0;1=7f0\n")
    bench.write("e/schemata", "L3:0=3;1=3\n")
    bench.write("o/schemata", "L3:0=c;1=c\n")
    return bench


def test_overlapping_masks_cannot_be_exclusive() -> None:
    bench = Bench(CASCADE_LAKE)
    bench.mkdir("e")
    assert bench.refused("e/mode", "exclusive\n") == "Schemata overlaps\n"
    assert bench.read("e/mode") == "shareable\n"


def test_an_exclusive_group_is_guarded_on_both_sides(bench: Bench) -> None:
    bench.write("e/mode", "exclusive\n")
    assert bench.read("info/L3/bit_usage") == "0=XXSSSSSSSEE;1=XXSSSSSSSEE\n"
    assert bench.refused("o/schemata", "L3:0=e\n") == "Overlaps with exclusive group\n"
    assert bench.refused("schemata", "L3:0=7ff\n") == "Overlaps with exclusive group\n"
    assert bench.refused("e/schemata", "L3:0=7\n") == "Overlaps with other group\n"


def test_a_new_group_gets_what_is_shareable_or_unused(bench: Bench) -> None:
    bench.write("e/mode", "exclusive\n")
    bench.write("e/schemata", "L3:0=1;1=1\n")
    bench.mkdir("n")
    assert bench.read("n/schemata").endswith("L3:0=7fe;1=7fe\n")


def test_a_new_group_gets_only_the_lowest_run_of_ways(bench: Bench) -> None:
    bench.write("o/mode", "exclusive\n")
    bench.mkdir("n")
    assert bench.read("n/schemata").endswith("L3:0=003;1=003\n")


def test_no_group_can_be_made_where_no_way_is_left() -> None:
    bench = Bench("minimal")
    bench.write("schemata", "L3:0=f0\n")
    bench.mkdir("e")
    bench.write("e/schemata", "L3:0=f\n")
    bench.write("e/mode", "exclusive\n")
    bench.write("mode", "exclusive\n")
    with pytest.raises(OSError) as refused:
        bench.mkdir("n")
    assert refused.value.errno == errno.ENOSPC
    assert bench.status == "No space on L3:0\n"
    bench.write("mode", "shareable\n")
    bench.mkdir("n")


def test_ways_shared_with_devices_are_nobodys_own(bench: Bench) -> None:
    bench.write("o/schemata", "L3:0=600;1=600\n")
    assert bench.refused("o/mode", "exclusive\n") == "Schemata overlaps\n"


def test_cdp_halves_guard_each_other() -> None:
    bench = Bench(CASCADE_LAKE, "cdp")
    bench.mkdir("e")
    bench.write("schemata", "L3CODE:0=7f0;1=7f0\nL3DATA:0=7f0;1=7f0\n")
    bench.write("e/schemata", "L3CODE:0=3;1=3\nL3DATA:0=3;1=3\n")
    bench.write("e/mode", "exclusive\n")
    assert bench.refused("schemata", "L3DATA:0=7f2\n") == "The mask 7f2 has non-consecutive 1-bits\n"
    assert bench.refused("schemata", "L3DATA:0=1\n") == "Overlaps with exclusive group\n"


@pytest.mark.parametrize("word", ["foo\n", "pseudo-locked\n", "\n", "Shareable\n", " shareable\n"])
def test_an_unknown_mode_is_refused(bench: Bench, word: str) -> None:
    assert bench.refused("e/mode", word) == "Unknown or unsupported mode\n"


def test_bandwidth_alone_cannot_be_exclusive() -> None:
    bench = Bench(replace(CASCADE_LAKE, l3=None))
    assert bench.refused("mode", "exclusive\n") == "Cannot be exclusive without CAT/CDP\n"
