# SPDX-License-Identifier: Apache-2.0
"""Masks for code and for data: the mount options ``cdp`` and ``cdpl2``."""

from __future__ import annotations

import pytest

from tests.conformance import needs
from tests.conformance.answer import done, invalid
from tests.conformance.layout import every_way
from tests.conformance.machines import classes_of
from tests.conformance.registers import code_mask, data_mask

OPTION = {3: "cdp", 2: "cdpl2"}
pytestmark = needs.CDP_EVERYWHERE


@pytest.fixture
def split(bare, cache):
    """A mount with masks for code and data of the case's cache."""
    assert bare.mount(OPTION[cache.level]) is None
    return bare


def names(cache):
    return f"{cache.name}CODE", f"{cache.name}DATA"


def make_exclusive(split, cache):
    """A group that has the ways 0 and 1 for code and 2 and 3 for data."""
    split.group("g")
    code, data = names(cache)
    for other in needs.caches_of(split.profile):
        lines = [(other.name, "f")] if other.level != cache.level else [(code, "3"), (data, "c")]
        for number in split.cache_ids(other.level):
            for name, own in lines:
                assert split.write("schemata", f"{name}:{number}=f0\n") == done()
                assert split.write("g/schemata", f"{name}:{number}={own}\n") == done()
    assert split.write("g/mode", "exclusive\n") == done()


def test_there_are_half_as_many_classes(split, cache):
    for name in names(cache):
        assert split.read(f"info/{name}/num_closids") == f"{cache.num_closids // 2}\n"
        assert split.read(f"info/{name}/cbm_mask") == f"{every_way(cache):x}\n"
        assert split.read(f"info/{name}/shareable_bits") == f"{cache.shareable_bits:x}\n"


def test_code_and_data_have_masks_and_registers_of_their_own(split, cache):
    code, data = names(cache)
    split.group("g")
    assert split.write("g/schemata", f"{code}:1=3\n") == done()
    assert split.write("g/schemata", f"{data}:1=f0\n") == done()
    assert split.masks(code, "g")[1] == 3
    assert split.masks(data, "g")[1] == 0xF0
    assert split.register(cache.level, 1, code_mask(cache.level, 1)) == 3
    assert split.register(cache.level, 1, data_mask(cache.level, 1)) == 0xF0
    assert split.register(cache.level, 0, code_mask(cache.level, 1)) == every_way(cache)


def test_both_can_be_set_in_one_write(split, cache):
    code, data = names(cache)
    assert split.write("schemata", f"{code}:0=3;1=7\n{data}:0=f\n") == done()
    assert split.masks(code)[0] == 3
    assert split.masks(code)[1] == 7
    assert split.masks(data)[0] == 0xF
    assert split.register(cache.level, 0, code_mask(cache.level, 0)) == 3
    assert split.register(cache.level, 0, data_mask(cache.level, 0)) == 0xF


def test_a_mistake_in_one_leaves_the_other_undone(split, cache):
    code, data = names(cache)
    wide = every_way(cache) + 1
    assert split.write("schemata", f"{code}:0=3\n{data}:0={wide:x}\n") == invalid("Mask out of range")
    assert split.masks(code)[0] == every_way(cache)


def test_the_same_cache_may_be_named_once_for_code_and_once_for_data(split, cache):
    code, data = names(cache)
    assert split.write("schemata", f"{code}:0=3\n{data}:0=3\n") == done()
    assert split.write("schemata", f"{code}:0=3\n{code}:0=7\n") == invalid("Duplicate domain 0")
    assert split.write("schemata", f"{data}:0=3;0=7\n") == invalid("Duplicate domain 0")


def test_the_undivided_name_is_unknown(split, cache):
    unknown = f"Unknown or unsupported resource name '{cache.name}'"
    assert split.write("schemata", f"{cache.name}:0=3\n") == invalid(unknown)
    assert cache.name not in split.lines("schemata")


def test_the_other_cache_is_not_divided(split, cache):
    for other in needs.caches_of(split.profile):
        if other.level != cache.level:
            assert other.name in split.lines("schemata")
            assert split.write("schemata", f"{other.name}:0=3\n") == done()


def test_the_lines_of_code_and_data_are_in_a_fixed_order(split, cache):
    code, data = names(cache)
    shown = [name for name in split.lines("schemata") if name in (code, data)]
    assert shown == [data, code]


def test_size_has_a_line_for_each(split, cache):
    code, data = names(cache)
    assert split.write("schemata", f"{code}:0=3\n") == done()
    way = split.profile.topology.caches(cache.level)[0].size // cache.ways
    assert split.lines("size")[code][0] == str(2 * way)
    assert split.lines("size")[data][0] == str(cache.ways * way)


def test_as_many_groups_as_classes_can_be_made(split, cache):
    for number in range(classes_of(split.profile, cdp=cache.level) - 1):
        split.group(f"g{number}")
    assert split.mkdir("more").errno == "ENOSPC"


@needs.WAYS_WITHOUT_DEVICES
def test_exclusive_code_keeps_others_data_away_too(split, cache):
    code, data = names(cache)
    make_exclusive(split, cache)
    assert split.write("schemata", f"{data}:0=1\n") == invalid("Overlaps with exclusive group")
    assert split.write("schemata", f"{code}:0=8\n") == invalid("Overlaps with exclusive group")
    assert split.usage(code)[0].endswith("EE")
    assert split.usage(data)[0].endswith("EE00")


@needs.WAYS_WITHOUT_DEVICES
def test_a_new_group_starts_with_what_neither_code_nor_data_of_another_has_for_itself(split, cache):
    code, data = names(cache)
    full = every_way(cache)
    make_exclusive(split, cache)
    split.group("h")
    assert set(split.masks(code, "h").values()) == {full & ~0xF}
    assert set(split.masks(data, "h").values()) == {full & ~0xF}


def test_pseudo_locking_is_out_of_the_question(split):
    split.group("g")
    assert split.write("g/mode", "pseudo-locksetup\n") == invalid("CDP enabled")
