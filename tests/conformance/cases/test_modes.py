# SPDX-License-Identifier: Apache-2.0
"""``mode``: shareable and exclusive groups, and what exclusive ones keep others from."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import done, invalid, refused
from tests.conformance.layout import HIGH, LOW, apart, exclusive, give


def test_the_mode_is_one_of_the_known_words(rdt):
    rdt.group("g")
    for wrong in ("x\n", "\n", "Shareable\n", " exclusive\n", "exclusive \n", "exclusiv\n", "shareable\nx\n"):
        assert rdt.write("g/mode", wrong) == invalid("Unknown or unsupported mode")
    assert rdt.read("g/mode") == "shareable\n"


def test_a_mode_needs_a_newline_and_without_one_the_status_stays(rdt):
    assert rdt.write("mode", "exclusive") == refused("EINVAL")
    assert rdt.write("mode", "x\n") == invalid("Unknown or unsupported mode")
    assert rdt.write("mode", "exclusive") == invalid("Unknown or unsupported mode")


@needs.WAYS_WITHOUT_DEVICES
def test_the_mode_it_has_is_taken(rdt):
    assert rdt.write("mode", "shareable\n") == done()
    exclusive(rdt)
    assert rdt.write("g/mode", "exclusive\n") == done()
    assert rdt.read("g/mode") == "exclusive\n"


@needs.WAYS_WITHOUT_DEVICES
def test_what_follows_a_nul_is_not_read(rdt):
    apart(rdt)
    assert rdt.write("g/mode", "exclusive\0x\n") == done()
    assert rdt.read("g/mode") == "exclusive\n"


def test_pseudo_locked_is_not_written_but_reached(rdt):
    rdt.group("g")
    assert rdt.write("g/mode", "pseudo-locked\n") == invalid("Unknown or unsupported mode")


@needs.WAYS_WITHOUT_DEVICES
def test_a_group_that_overlaps_another_cannot_be_exclusive(rdt):
    rdt.group("g")
    assert rdt.write("g/mode", "exclusive\n") == invalid("Schemata overlaps")
    give(rdt, "g", LOW)
    assert rdt.write("g/mode", "exclusive\n") == invalid("Schemata overlaps")
    give(rdt, "", LOW << 3)
    assert rdt.write("g/mode", "exclusive\n") == invalid("Schemata overlaps")
    give(rdt, "", LOW << 4)
    assert rdt.write("g/mode", "exclusive\n") == done()


def test_one_cache_that_overlaps_is_enough_to_refuse(rdt, cache):
    apart(rdt)
    *_, last = rdt.cache_ids(cache.level)
    assert rdt.write("g/schemata", f"{cache.name}:{last}=1f\n") == done()
    assert rdt.write("g/mode", "exclusive\n") == invalid("Schemata overlaps")
    assert rdt.read("g/mode") == "shareable\n"


@needs.WAYS_WITHOUT_DEVICES
def test_the_default_group_can_be_exclusive_too(rdt):
    apart(rdt)
    assert rdt.write("mode", "exclusive\n") == done()
    assert rdt.read("mode") == "exclusive\n"
    assert rdt.read("g/mode") == "shareable\n"


@needs.SHAREABLE_BITS_EVERYWHERE
def test_a_group_with_ways_that_devices_fill_cannot_be_exclusive(rdt):
    apart(rdt)
    for cache in needs.caches_of(rdt.profile):
        assert rdt.write("g/schemata", f"{cache.name}:0={cache.shareable_bits:x}\n") == done()
    assert rdt.write("g/mode", "exclusive\n") == invalid("Schemata overlaps")


@needs.WAYS_WITHOUT_DEVICES
@needs.SHAREABLE_BITS_EVERYWHERE
def test_an_exclusive_group_takes_no_ways_that_devices_fill(rdt, cache):
    exclusive(rdt)
    shared = f"{cache.shareable_bits:x}"
    assert rdt.write("g/schemata", f"{cache.name}:0={shared}\n") == invalid("Overlaps with other group")


@needs.WAYS_WITHOUT_DEVICES
def test_nobody_takes_a_way_of_an_exclusive_group(rdt, cache):
    exclusive(rdt)
    rdt.group("h")
    for path in ("schemata", "h/schemata"):
        for wanted in (LOW, 1, 8, LOW | HIGH):
            answer = rdt.write(path, f"{cache.name}:0={wanted:x}\n")
            assert answer == invalid("Overlaps with exclusive group")
        assert rdt.write(path, f"{cache.name}:0={HIGH:x}\n") == done()


@needs.WAYS_WITHOUT_DEVICES
def test_an_exclusive_group_takes_no_way_of_anybody(rdt, cache):
    exclusive(rdt)
    assert rdt.write("g/schemata", f"{cache.name}:0=1f\n") == invalid("Overlaps with other group")
    assert rdt.write("g/schemata", f"{cache.name}:0=3\n") == done()
    assert rdt.write("g/schemata", f"{cache.name}:0={LOW:x}\n") == done()
    assert rdt.read("g/mode") == "exclusive\n"


@needs.WAYS_WITHOUT_DEVICES
def test_two_exclusive_groups_keep_apart(rdt, cache):
    exclusive(rdt)
    assert rdt.write("mode", "exclusive\n") == done()
    assert rdt.write("schemata", f"{cache.name}:0=f8\n") == invalid("Overlaps with exclusive group")
    assert rdt.write("g/schemata", f"{cache.name}:0=1f\n") == invalid("Overlaps with exclusive group")


@needs.WAYS_WITHOUT_DEVICES
def test_a_way_that_an_exclusive_group_left_is_anybodys(rdt, cache):
    exclusive(rdt)
    assert rdt.write("g/schemata", f"{cache.name}:0=3\n") == done()
    assert rdt.write("schemata", f"{cache.name}:0=fc\n") == done()
    assert rdt.write("schemata", f"{cache.name}:0=fe\n") == invalid("Overlaps with exclusive group")


@needs.WAYS_WITHOUT_DEVICES
def test_shareable_again_a_group_shares_again(rdt, cache):
    exclusive(rdt)
    assert rdt.write("g/mode", "shareable\n") == done()
    assert rdt.read("g/mode") == "shareable\n"
    assert rdt.write("schemata", f"{cache.name}:0={LOW | HIGH:x}\n") == done()


@needs.WAYS_WITHOUT_DEVICES
def test_a_removed_exclusive_groups_ways_are_free(rdt, cache):
    exclusive(rdt)
    assert rdt.rmdir("g").errno is None
    assert rdt.write("schemata", f"{cache.name}:0={LOW | HIGH:x}\n") == done()


@needs.WAYS_WITHOUT_DEVICES
@needs.BANDWIDTH
def test_bandwidth_is_never_exclusive(rdt):
    exclusive(rdt)
    assert rdt.write("g/schemata", "MB:0=50\n") == done()
    assert rdt.write("schemata", "MB:0=50\n") == done()


@needs.MONITORING
def test_a_monitoring_group_has_no_mode(rdt):
    rdt.group("mon_groups/m")
    assert rdt.refusal_to_read("mon_groups/m/mode") == "ENOENT"
