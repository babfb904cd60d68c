# SPDX-License-Identifier: Apache-2.0
"""Masks in ``schemata``: which are taken, which are refused and why, and what reaches the hardware."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import done, invalid, refused
from tests.conformance.layout import LOW, every_way, give
from tests.conformance.registers import mask


def test_a_mask_is_read_back_and_reaches_the_register_of_its_class_and_cache(rdt, cache):
    rdt.group("g")
    *others, last = rdt.cache_ids(cache.level)
    assert rdt.write("g/schemata", f"{cache.name}:{last}=3\n") == done()
    assert rdt.masks(cache.name, "g") == {**dict.fromkeys(others, every_way(cache)), last: 3}
    assert rdt.register(cache.level, last, mask(cache.level, 1)) == 3
    assert rdt.register(cache.level, last, mask(cache.level, 0)) == every_way(cache)
    assert rdt.register(cache.level, others[0], mask(cache.level, 1)) == every_way(cache)


def test_the_default_group_is_the_class_0(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=f\n") == done()
    assert rdt.masks(cache.name)[0] == 0xF
    assert rdt.register(cache.level, 0, mask(cache.level, 0)) == 0xF


def test_several_caches_may_be_set_in_one_line_in_any_order(rdt, cache):
    *_, before, last = rdt.cache_ids(cache.level)
    assert rdt.write("schemata", f"{cache.name}:{last}=3;{before}=7\n") == done()
    assert rdt.masks(cache.name)[before] == 7
    assert rdt.masks(cache.name)[last] == 3
    assert rdt.register(cache.level, before, mask(cache.level, 0)) == 7
    assert rdt.register(cache.level, last, mask(cache.level, 0)) == 3


def test_a_cache_that_a_line_does_not_name_keeps_its_mask(rdt, cache):
    *_, before, last = rdt.cache_ids(cache.level)
    assert rdt.write("schemata", f"{cache.name}:{before}=3\n") == done()
    assert rdt.write("schemata", f"{cache.name}:{last}=c\n") == done()
    assert rdt.masks(cache.name)[before] == 3


def test_a_mask_is_a_hexadecimal_number_in_any_of_its_forms(rdt, cache):
    for text in ("f", "F", "0xf", "0XF", "00f", "+f", "0x000F"):
        assert rdt.write("schemata", f"{cache.name}:0=3\n") == done()
        assert rdt.write("schemata", f"{cache.name}:0={text}\n") == done()
        assert rdt.masks(cache.name)[0] == 0xF


def test_what_is_no_hexadecimal_number_is_told(rdt, cache):
    for text in ("g", "3x", "-1", "0x", "3 4", "1ffffffffffffffff", "", "3=3", "3,4"):
        assert rdt.write("schemata", f"{cache.name}:0={text}\n") == invalid(f"Non-hex character in the mask {text}")
    assert rdt.masks(cache.name)[0] == every_way(cache)


def test_a_mask_wider_than_the_cache_is_out_of_range(rdt, cache):
    full = every_way(cache)
    for wrong in (full + 1, full << 1 | 1, 0xFFFFFFFF, 0x100000000, 0xFFFFFFFFFFFFFFFF):
        assert rdt.write("schemata", f"{cache.name}:0={wrong:x}\n") == invalid("Mask out of range")
    assert rdt.write("schemata", f"{cache.name}:0={full:x}\n") == done()


@needs.NO_EMPTY_MASKS
def test_an_empty_mask_is_out_of_range(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=0\n") == invalid("Mask out of range")
    assert rdt.register(cache.level, 0, mask(cache.level, 0)) == every_way(cache)


@needs.EMPTY_MASKS
def test_an_empty_mask_is_taken_where_the_processor_knows_it(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=0\n") == done()
    assert rdt.masks(cache.name)[0] == 0
    assert rdt.register(cache.level, 0, mask(cache.level, 0)) == 0


def test_one_way_is_enough(rdt, cache):
    for way in (0, cache.ways - 1):
        assert rdt.write("schemata", f"{cache.name}:0={1 << way:x}\n") == done()
        assert rdt.masks(cache.name)[0] == 1 << way


def test_a_mask_with_a_gap_is_taken_only_where_masks_may_be_sparse(rdt, cache):
    before = rdt.masks(cache.name)[0]
    for gappy in (0x5, 0x81, 0xB, 0xF0 | 1):
        answer = rdt.write("schemata", f"{cache.name}:0={gappy:x}\n")
        if cache.sparse:
            assert answer == done()
            assert rdt.masks(cache.name)[0] == gappy
            assert rdt.register(cache.level, 0, mask(cache.level, 0)) == gappy
        else:
            assert answer == invalid(f"The mask {gappy:x} has non-consecutive 1-bits")
            assert rdt.masks(cache.name)[0] == before


def test_a_cache_id_is_a_decimal_number(rdt, cache):
    for text in ("00", "+0", "000"):
        assert rdt.write("schemata", f"{cache.name}:{text}=7\n") == done()
        assert rdt.masks(cache.name)[0] == 7
        assert rdt.write("schemata", f"{cache.name}:0=f\n") == done()
    for text in ("a", "-1", "0x0", "", " ", "0.", "1-2", "0,1"):
        assert rdt.write("schemata", f"{cache.name}:{text}=7\n") == invalid("Missing '=' or non-numeric domain")
    assert rdt.masks(cache.name)[0] == 0xF


def test_a_value_without_its_cache_id_is_told(rdt, cache):
    for text in ("0", "7", "0:7", ";", "0=7;1", "0=7;;"):
        assert rdt.write("schemata", f"{cache.name}:{text}\n") == invalid("Missing '=' or non-numeric domain")
    assert rdt.masks(cache.name)[0] == every_way(cache)


def test_an_unknown_cache_id_is_refused_without_a_word(rdt, cache):
    for text in ("99=3", "0=3;99=3", "99=3;0=3", "4294967295=3"):
        assert rdt.write("schemata", f"{cache.name}:{text}\n") == refused("EINVAL")
    assert rdt.masks(cache.name)[0] == every_way(cache)


def test_the_same_cache_twice_in_one_write_is_refused(rdt, cache):
    for text in (f"{cache.name}:0=3;0=7\n", f"{cache.name}:0=3;0=3\n", f"{cache.name}:0=3\n{cache.name}:0=7\n"):
        assert rdt.write("schemata", text) == invalid("Duplicate domain 0")
    assert rdt.masks(cache.name)[0] == every_way(cache)


def test_a_semicolon_may_end_the_values(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=3;\n") == done()
    assert rdt.masks(cache.name)[0] == 3


def test_blanks_are_taken_around_the_name_and_behind_the_equals_sign_only(rdt, cache):
    for taken in (" @:0=7", "\t@:0=7", "@ :0=7", "@:0= 7", "@:0=7 ", "@:0=\t7 ", "   @  :0=7"):
        assert rdt.write("schemata", f"{cache.name}:0=f\n") == done()
        assert rdt.write("schemata", taken.replace("@", cache.name) + "\n") == done()
        assert rdt.masks(cache.name)[0] == 7
    for wrong in ("@: 0=7", "@:0 =7", "@:0=7; 1=7"):
        text = wrong.replace("@", cache.name) + "\n"
        assert rdt.write("schemata", text) == invalid("Missing '=' or non-numeric domain")


def test_a_carriage_return_is_a_blank(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=7\r\n") == done()
    assert rdt.masks(cache.name)[0] == 7


def test_the_resource_is_named_as_it_is_shown(rdt, cache):
    for wrong in (cache.name.lower(), f"{cache.name}CODE", f"{cache.name}DATA", f"{cache.name}X", "L9", "L"):
        unknown = f"Unknown or unsupported resource name '{wrong}'"
        assert rdt.write("schemata", f"{wrong}:0=3\n") == invalid(unknown)


def test_the_same_mask_again_is_taken(rdt, cache):
    for _ in range(2):
        assert rdt.write("schemata", f"{cache.name}:0=3\n") == done()
    assert rdt.register(cache.level, 0, mask(cache.level, 0)) == 3


def test_shareable_groups_may_overlap_each_other(rdt, cache):
    for group in ("g", "h"):
        rdt.group(group)
        assert rdt.write(f"{group}/schemata", f"{cache.name}:0=3\n") == done()
    assert rdt.masks(cache.name, "g") == rdt.masks(cache.name, "h")


def test_what_was_shown_can_be_written_back(rdt):
    rdt.group("g")
    give(rdt, "g", LOW)
    for path in ("schemata", "g/schemata"):
        shown = rdt.read(path)
        assert rdt.write(path, shown) == done()
        assert rdt.read(path) == shown


def test_size_is_the_bytes_of_the_masks(rdt, cache):
    *_, last = caches = rdt.profile.topology.caches(cache.level)
    rdt.group("g")
    assert rdt.write("g/schemata", f"{cache.name}:{last.id}=7\n") == done()
    way = last.size // cache.ways
    sizes = {one.id: str(way * cache.ways) for one in caches} | {last.id: str(way * 3)}
    assert rdt.lines("g/size")[cache.name] == sizes
    assert rdt.lines("size")[cache.name] == {one.id: str(way * cache.ways) for one in caches}
