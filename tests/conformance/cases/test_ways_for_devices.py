# SPDX-License-Identifier: Apache-2.0
"""``info/L3/io_alloc`` and ``io_alloc_cbm``: devices are confined to the ways of the highest class."""

from __future__ import annotations

import pytest

from tests.conformance import needs
from tests.conformance.answer import done, invalid, refused
from tests.conformance.differences import IO_ALLOC
from tests.conformance.layout import every_way
from tests.conformance.machines import classes_of
from tests.conformance.registers import L3_EXTENDED, mask

pytestmark = [needs.IO_ALLOC, needs.kernel_with(IO_ALLOC)]

SWITCH, MASKS = "info/L3/io_alloc", "info/L3/io_alloc_cbm"
CONFINED = 2
"""Bit 1 of the register."""


def values(rdt):
    """``io_alloc_cbm`` by the cache's id."""
    pairs = (pair.partition("=") for pair in rdt.read(MASKS).strip().split(";"))
    return {int(number): int(value, 16) for number, _, value in pairs}


def test_devices_are_not_confined_at_first(rdt):
    assert rdt.read(SWITCH) == "disabled\n"
    assert rdt.register(3, 0, L3_EXTENDED) & CONFINED == 0
    assert rdt.write(MASKS, "0=1\n") == invalid("io_alloc is not enabled on L3")


@pytest.mark.parametrize("word", ["1", "on", "Yes", "true", "enable\n"])
def test_it_is_switched_on_by_the_beginning_of_a_word(rdt, word):
    assert rdt.write(SWITCH, word) == done()
    assert rdt.read(SWITCH) == "enabled\n"
    assert rdt.register(3, 1, L3_EXTENDED) & CONFINED


@pytest.mark.parametrize("word", ["2\n", "\n", "o\n"])
def test_other_words_are_invalid_and_leave_the_message_before(rdt, word):
    assert rdt.write("schemata", "L3:0=10000\n") == invalid("Mask out of range")
    assert rdt.write(SWITCH, word) == invalid("Mask out of range")
    assert rdt.read(SWITCH) == "disabled\n"


def test_switched_on_they_may_fill_every_way_that_no_exclusive_group_has(rdt):
    number = rdt.profile.l3.num_closids - 1
    assert rdt.write(SWITCH, "1\n") == done()
    everything = every_way(rdt.profile.l3)
    assert set(values(rdt).values()) == {everything}
    assert rdt.register(3, 0, mask(3, number)) == everything


def test_the_highest_class_is_gone_while_they_are_confined(rdt):
    assert rdt.write(SWITCH, "1\n") == done()
    for number in range(classes_of(rdt.profile) - 2):
        rdt.group(f"g{number}")
    assert rdt.mkdir("late") == refused("ENOSPC", "Out of CLOSIDs\n")
    assert rdt.write(SWITCH, "0\n") == done()
    rdt.group("late")


def test_a_class_that_a_group_has_is_left_to_it(rdt):
    last = classes_of(rdt.profile) - 1
    for number in range(last):
        rdt.group(f"g{number}")
    reason = f"CLOSID (ctrl_hw_id) {last} for io_alloc is used by g{last - 1} group\n"
    assert rdt.write(SWITCH, "1\n") == refused("ENOSPC", reason)
    assert rdt.read(SWITCH) == "disabled\n"


def test_their_masks_reach_the_highest_classes_registers(rdt):
    number = rdt.profile.l3.num_closids - 1
    assert rdt.write(SWITCH, "1\n") == done()
    assert rdt.write(MASKS, "0=f00f;2=3\n") == done()
    found = values(rdt)
    assert (found[0], found[1], found[2]) == (0xF00F, every_way(rdt.profile.l3), 3)
    assert rdt.register(3, 0, mask(3, number)) == 0xF00F
    assert rdt.write(SWITCH, "0\n") == done()
    assert rdt.register(3, 0, L3_EXTENDED) & CONFINED == 0


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("0=10000", "Mask out of range"),
        ("0=x", "Non-hex character in the mask x"),
        ("L3:0=1", "Missing '=' or non-numeric domain"),
        ("0", "Missing '=' or non-numeric domain"),
        ("0=1;0=2", "Duplicate domain 0"),
        ("99=1", "Invalid domain 99"),
        ("1=3;99=1", "Invalid domain 99"),
    ],
)
def test_their_masks_are_checked_and_none_is_taken_where_one_is_wrong(rdt, text, status):
    assert rdt.write(SWITCH, "1\n") == done()
    assert rdt.write(MASKS, f"{text}\n") == refused("EINVAL", f"{status}\n")
    assert set(values(rdt).values()) == {every_way(rdt.profile.l3)}


def test_without_a_newline_nothing_is_taken(rdt):
    assert rdt.write(SWITCH, "1\n") == done()
    assert rdt.write(MASKS, "0=1") == refused("EINVAL")


def test_their_ways_are_shown_as_those_of_devices(rdt):
    assert rdt.write(SWITCH, "1\n") == done()
    assert rdt.write(MASKS, "0=3\n") == done()
    assert rdt.write("schemata", "L3:0=fffe\n") == done()
    assert rdt.usage("L3")[0] == "S" * 14 + "XH"


def test_a_group_that_has_ways_of_theirs_can_not_be_exclusive(rdt):
    caches = rdt.cache_ids(3)
    everywhere = {name: ";".join(f"{number}={ways}" for number in caches) for name, ways in (("", "ff00"), ("g", "f"))}
    rdt.group("g")
    assert rdt.write("schemata", f"L3:{everywhere['']}\n") == done()
    assert rdt.write("g/schemata", f"L3:{everywhere['g']}\n") == done()
    assert rdt.write(SWITCH, "1\n") == done()
    assert rdt.write(MASKS, "3=1\n") == done()
    assert rdt.write("g/mode", "exclusive\n") == invalid("Schemata overlaps")


def test_umount_does_not_switch_it_off_and_gives_their_class_back(bare):
    assert bare.mount() is None
    assert bare.write(SWITCH, "1\n") == done()
    assert bare.write(MASKS, "0=3\n") == done()
    assert bare.umount() is None
    assert bare.mount() is None
    assert bare.read(SWITCH) == "enabled\n"
    assert set(values(bare).values()) == {every_way(bare.profile.l3)}
    for number in range(classes_of(bare.profile) - 1):
        bare.group(f"g{number}")
    assert bare.write(f"g{number}/schemata", "L3:0=f0\n") == done()
    assert values(bare)[0] == 0xF0


@needs.CDP
def test_with_cdp_they_have_the_same_ways_for_code_and_for_data(bare):
    assert bare.mount("cdp") is None
    assert bare.write("info/L3CODE/io_alloc", "1\n") == done()
    assert bare.read("info/L3DATA/io_alloc") == "enabled\n"
    assert bare.write("info/L3DATA/io_alloc_cbm", "0=ff\n") == done()
    assert bare.read("info/L3CODE/io_alloc_cbm") == bare.read("info/L3DATA/io_alloc_cbm")
    highest = bare.profile.l3.num_closids - 1
    assert [bare.register(3, 0, mask(3, number)) for number in (highest - 1, highest)] == [0xFF, 0xFF]
