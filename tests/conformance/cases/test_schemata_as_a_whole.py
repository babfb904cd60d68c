# SPDX-License-Identifier: Apache-2.0
"""What holds for a write to ``schemata`` as a whole: all of it or nothing, and how it must look."""

from __future__ import annotations

import os

from tests.conformance import needs
from tests.conformance.answer import done, invalid, refused
from tests.conformance.differences import UNPADDED_VALUES
from tests.conformance.layout import every_way
from tests.conformance.machines import classes_of
from tests.conformance.registers import mask


def opened_once(*pieces, flags=0):
    """What opens a file and writes each piece by a system call of its own, at an offset of its own."""

    def act(path):
        descriptor = os.open(path, os.O_WRONLY | flags)
        try:
            for number, piece in enumerate(pieces):
                os.pwrite(descriptor, piece.encode(), 1000 * number)
        finally:
            os.close(descriptor)

    return act


@needs.L3_AND_BANDWIDTH
def test_several_resources_may_be_set_in_one_write(rdt):
    rdt.group("g")
    assert rdt.write("g/schemata", "L3:0=3\nMB:0=20\n") == done()
    assert rdt.masks("L3", "g")[0] == 3
    assert rdt.bandwidths("g")[0] == 20


@needs.L3_AND_BANDWIDTH
def test_if_any_line_is_refused_no_line_is_done(rdt):
    rdt.group("g")
    before = rdt.read("g/schemata")
    wide = f"{1 << rdt.profile.l3.ways:x}"
    assert rdt.write("g/schemata", f"MB:0=30\nL3:0={wide}\n") == invalid("Mask out of range")
    assert rdt.write("g/schemata", f"L3:0=3;1=3\nL3:1={wide}\n") == invalid("Duplicate domain 1")
    assert rdt.write("g/schemata", "L3:0=3\nXX:0=1\n") == invalid("Unknown or unsupported resource name 'XX'")
    assert rdt.write("g/schemata", "L3:0=3\nMB:0=zz\n") == invalid("Invalid MB value zz")
    assert rdt.write("g/schemata", "L3:0=3\nMB:99=20\n") == refused("EINVAL")
    assert rdt.read("g/schemata") == before
    assert rdt.register(3, 0, mask(3, 1)) == (1 << rdt.profile.l3.ways) - 1


def test_after_a_refused_write_nothing_of_it_is_left_for_the_next_one(rdt, cache):
    *_, before, last = rdt.cache_ids(cache.level)
    assert rdt.write("schemata", f"{cache.name}:{before}=3;{last}=zz\n").errno == "EINVAL"
    assert rdt.write("schemata", f"{cache.name}:{last}=7\n") == done()
    assert rdt.masks(cache.name)[before] == every_way(cache)


def test_without_a_newline_at_the_end_a_write_is_refused_and_the_status_left_as_it_was(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=3") == refused("EINVAL")
    assert rdt.write("schemata", "nonsense\n") == invalid("Missing ':'")
    assert rdt.write("schemata", f"{cache.name}:0=3") == invalid("Missing ':'")
    assert rdt.masks(cache.name)[0] == every_way(cache)


def test_a_line_needs_a_colon_and_a_value(rdt, cache):
    for text in ("\n", " \n", "x\n", f"{cache.name}\n", f"{cache.name}=3\n", "#comment\n"):
        assert rdt.write("schemata", text) == invalid("Missing ':'")
    assert rdt.write("schemata", f"{cache.name}:\n") == invalid(f"Missing '{cache.name}' value")
    assert rdt.write("schemata", f" {cache.name} :\n") == invalid(f"Missing '{cache.name}' value")
    assert rdt.write("schemata", ":\n") == invalid("Missing '' value")
    assert rdt.write("schemata", ":0=3\n") == invalid("Unknown or unsupported resource name ''")


def test_an_empty_line_at_the_end_is_one_too_many(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=3\n\n") == invalid("Missing ':'")
    assert rdt.masks(cache.name)[0] == every_way(cache)


def test_what_follows_a_nul_is_not_read(rdt, cache):
    assert rdt.write("schemata", f"{cache.name}:0=3\0{cache.name}:0=zz\n") == done()
    assert rdt.masks(cache.name)[0] == 3


def test_more_than_a_page_is_too_big(rdt, cache):
    line = f"{cache.name}:" + ";".join(["0=3"] * 1100) + "\n"
    assert len(line) > 4096
    assert rdt.write("schemata", line) == refused("E2BIG")


def test_less_than_a_page_is_read_to_its_end(rdt, cache):
    line = f"{cache.name}:0=" + "0" * 4000 + "3\n"
    assert rdt.write("schemata", line) == done()
    assert rdt.masks(cache.name)[0] == 3


def test_each_write_to_a_descriptor_is_one_of_its_own_wherever_in_the_file(rdt, cache):
    twice = opened_once(f"{cache.name}:0=1\n", f"{cache.name}:0=3\n")
    assert rdt.do("write twice", "schemata", twice) == done()
    assert rdt.masks(cache.name)[0] == 3


def test_a_line_in_two_writes_is_two_wrong_lines(rdt, cache):
    assert rdt.do("write half", "schemata", opened_once(f"{cache.name}:0=")) == refused("EINVAL")
    assert rdt.do("write the rest", "schemata", opened_once("f\n")) == invalid("Missing ':'")


def test_appending_is_writing(rdt, cache):
    append = opened_once(f"{cache.name}:0=7\n", flags=os.O_APPEND)
    assert rdt.do("append", "schemata", append) == done()
    assert rdt.masks(cache.name)[0] == 7


def test_the_lines_are_in_a_fixed_order_and_the_names_right_aligned(rdt):
    shown = [line.partition(":")[0] for line in rdt.read("schemata").splitlines()]
    known = [name for name in ("SMBA", "MB", "L2", "L3") if name in _names(rdt)]
    assert [name.strip() for name in shown] == known
    width = max(len(name) + (4 if _has_cdp(rdt, name) else 0) for name in known)
    assert shown == [name.rjust(width) for name in known]
    assert [line.partition(":")[0] for line in rdt.read("size").splitlines()] == shown


def test_values_are_padded_by_older_kernels_only(rdt, cache):
    widths = [(one.ways + 3) // 4 for one in needs.caches_of(rdt.profile)]
    if rdt.profile.bandwidth:
        widths.append(rdt.profile.bandwidth.width)
    assert rdt.write("schemata", f"{cache.name}:0=3\n") == done()
    shown = rdt.lines("schemata")[cache.name][0]
    assert shown == ("3" if rdt.has(UNPADDED_VALUES) else "3".zfill(max(widths)))


def test_the_caches_are_listed_by_their_ids(rdt, cache):
    line = next(line for line in rdt.read("schemata").splitlines() if line.strip().startswith(f"{cache.name}:"))
    assert [value.partition("=")[0] for value in line.partition(":")[2].split(";")] == [
        str(number) for number in rdt.cache_ids(cache.level)
    ]


def test_every_group_has_every_line(rdt):
    """There are as many groups as the poorest resource has classes."""
    for number in range(classes_of(rdt.profile) - 1):
        rdt.group(f"g{number}")
    assert list(rdt.lines(f"g{number}/schemata")) == list(rdt.lines("schemata"))


def _names(rdt):
    names = [cache.name for cache in needs.caches_of(rdt.profile)]
    return [*names, *(["MB"] if rdt.profile.bandwidth else []), *(["SMBA"] if rdt.profile.slow_bandwidth else [])]


def _has_cdp(rdt, name):
    return any(cache.cdp for cache in needs.caches_of(rdt.profile) if cache.name == name)
