# SPDX-License-Identifier: Apache-2.0
"""With which masks a new group starts (the kernel's ``rdtgroup_init_alloc``)."""

from __future__ import annotations

import pytest

from tests.conformance import needs
from tests.conformance.answer import done, refused
from tests.conformance.differences import SPARSE_STARTING_MASKS
from tests.conformance.layout import HIGH, LOW, apart, every_way, exclusive, give
from tests.conformance.machines import classes_of
from tests.conformance.registers import mask

NO_WAY_LEFT = needs.of(
    lambda profile: (
        all(cache.min_cbm_bits for cache in needs.caches_of(profile))
        and not all(cache.shareable_bits for cache in needs.caches_of(profile))
    )
)
"""A machine whose masks may not be empty, with a cache of which devices fill no way: it can be given away entirely."""


def lowest_run(ways):
    """The lowest ways without a gap between them."""
    return ways & ~(ways + (ways & -ways))


def test_on_an_untouched_machine_a_group_starts_with_everything(rdt, cache):
    rdt.group("g")
    assert set(rdt.masks(cache.name, "g").values()) == {every_way(cache)}


def test_unused_ways_and_those_of_shareable_groups_are_given(rdt, cache):
    apart(rdt, "g")
    rdt.group("h")
    assert set(rdt.masks(cache.name, "h").values()) == {every_way(cache)}


@needs.WAYS_WITHOUT_DEVICES
def test_the_ways_of_an_exclusive_group_are_not_given(rdt, cache):
    exclusive(rdt, "g")
    rdt.group("h")
    wanted = every_way(cache) & ~LOW
    assert set(rdt.masks(cache.name, "h").values()) == {wanted}
    assert rdt.register(cache.level, 0, mask(cache.level, 2)) == wanted


@needs.WAYS_WITHOUT_DEVICES
def test_of_ways_with_a_gap_only_the_lowest_run_is_given_unless_masks_may_be_sparse(rdt, cache):
    rdt.group("g")
    give(rdt, "", 0x3)
    give(rdt, "g", 0x30)
    assert rdt.write("g/mode", "exclusive\n") == done()
    rdt.group("h")
    free = every_way(cache) & ~0x30
    sparse = cache.sparse and rdt.has(SPARSE_STARTING_MASKS)
    assert set(rdt.masks(cache.name, "h").values()) == {free if sparse else 0xF}


@needs.WAYS_WITHOUT_DEVICES
def test_caches_are_looked_at_one_by_one(rdt, cache):
    rdt.group("g")
    *_, last = rdt.cache_ids(cache.level)
    give(rdt, "", HIGH)
    give(rdt, "g", LOW)
    assert rdt.write("g/schemata", f"{cache.name}:{last}=1\n") == done()
    assert rdt.write("g/mode", "exclusive\n") == done()
    rdt.group("h")
    found = rdt.masks(cache.name, "h")
    assert found[0] == every_way(cache) & ~LOW
    assert found[last] == every_way(cache) & ~1


@pytest.fixture
def full(rdt):
    """Two exclusive groups that leave no cache a way that could be given, but for those that devices fill."""
    exclusive(rdt)
    for cache in needs.caches_of(rdt.profile):
        rest = every_way(cache) & ~cache.shareable_bits & ~LOW
        line = ";".join(f"{number}={rest:x}" for number in rdt.cache_ids(cache.level))
        assert rdt.write("schemata", f"{cache.name}:{line}\n") == done()
    assert rdt.write("mode", "exclusive\n") == done()
    return rdt


@needs.WAYS_WITHOUT_DEVICES
@needs.SHAREABLE_BITS_EVERYWHERE
def test_the_ways_that_devices_fill_are_given_to_everybody(full, cache):
    full.group("h")
    assert set(full.masks(cache.name, "h").values()) == {lowest_run(cache.shareable_bits)}


@NO_WAY_LEFT
def test_without_a_way_to_give_no_group_is_made(full):
    name = next(cache.name for cache in reversed(needs.caches_of(full.profile)) if not cache.shareable_bits)
    before = full.ls()
    assert full.mkdir("h") == refused("ENOSPC", f"No space on {name}:0\n")
    assert full.ls() == before


@needs.EMPTY_MASKS
def test_without_a_way_to_give_a_group_starts_with_none_where_that_is_a_mask(full, cache):
    full.group("h")
    assert set(full.masks(cache.name, "h").values()) == {0}


@NO_WAY_LEFT
def test_after_a_refused_mkdir_the_class_is_free_again(full):
    for _ in range(2):
        assert full.mkdir("h").errno == "ENOSPC"
    assert full.write("mode", "shareable\n") == done()
    for number in range(classes_of(full.profile) - 2):
        full.group(f"g{number}")
    assert full.mkdir("more") == refused("ENOSPC", "Out of CLOSIDs\n")


@needs.BANDWIDTH
def test_a_new_group_has_all_bandwidth_whatever_its_class_had_before(rdt):
    rdt.group("g")
    assert rdt.write("g/schemata", "MB:0=50;1=50\n") == done()
    assert rdt.rmdir("g").errno is None
    rdt.group("h")
    assert set(rdt.bandwidths("h").values()) == {rdt.profile.bandwidth.max}
