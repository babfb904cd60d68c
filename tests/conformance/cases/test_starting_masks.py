# SPDX-License-Identifier: Apache-2.0
"""With which masks a new group starts (the kernel's ``rdtgroup_init_alloc``)."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import done, refused
from tests.conformance.differences import SPARSE_STARTING_MASKS
from tests.conformance.layout import HIGH, LOW, apart, exclusive, give
from tests.conformance.registers import mask

NO_EMPTY_MASKS = needs.of(lambda profile: all(cache.min_cbm_bits for cache in needs.caches_of(profile)))
EMPTY_MASKS = needs.of(lambda profile: any(not cache.min_cbm_bits for cache in needs.caches_of(profile)))


def everything(cache):
    return (1 << cache.ways) - 1


def lowest_run(ways):
    """The lowest ways without a gap between them."""
    return ways & ~(ways + (ways & -ways))


def test_on_an_untouched_machine_a_group_starts_with_everything(rdt, cache):
    rdt.group("g")
    assert set(rdt.masks(cache.name, "g").values()) == {everything(cache)}


def test_unused_ways_and_those_of_shareable_groups_are_given(rdt, cache):
    apart(rdt, "g")
    rdt.group("h")
    assert set(rdt.masks(cache.name, "h").values()) == {everything(cache)}


def test_the_ways_of_an_exclusive_group_are_not_given(rdt, cache):
    exclusive(rdt, "g")
    rdt.group("h")
    wanted = everything(cache) & ~LOW
    assert set(rdt.masks(cache.name, "h").values()) == {wanted}
    assert rdt.register(cache.level, 0, mask(cache.level, 2)) == wanted


def test_of_ways_with_a_gap_only_the_lowest_run_is_given_unless_masks_may_be_sparse(rdt, cache):
    rdt.group("g")
    give(rdt, "", 0x3)
    give(rdt, "g", 0x30)
    assert rdt.write("g/mode", "exclusive\n") == done()
    rdt.group("h")
    free = everything(cache) & ~0x30
    sparse = cache.sparse and rdt.has(SPARSE_STARTING_MASKS)
    assert set(rdt.masks(cache.name, "h").values()) == {free if sparse else 0xF}


def test_caches_are_looked_at_one_by_one(rdt, cache):
    rdt.group("g")
    *_, last = rdt.cache_ids(cache.level)
    give(rdt, "", HIGH)
    give(rdt, "g", LOW)
    assert rdt.write("g/schemata", f"{cache.name}:{last}=1\n") == done()
    assert rdt.write("g/mode", "exclusive\n") == done()
    rdt.group("h")
    found = rdt.masks(cache.name, "h")
    assert found[0] == everything(cache) & ~LOW
    assert found[last] == everything(cache) & ~1


def all_taken(rdt, cache):
    """Two exclusive groups that leave a cache without a way that could be given."""
    rdt.group("g")
    give(rdt, "", HIGH)
    give(rdt, "g", LOW)
    assert rdt.write("g/mode", "exclusive\n") == done()
    for other in needs.caches_of(rdt.profile):
        rest = everything(other) & ~other.shareable_bits & ~LOW
        line = ";".join(f"{number}={rest:x}" for number in rdt.cache_ids(other.level))
        assert rdt.write("schemata", f"{other.name}:{line}\n") == done()
    answer = rdt.write("mode", "exclusive\n")
    return answer


@NO_EMPTY_MASKS
def test_without_a_way_to_give_no_group_is_made(rdt, cache):
    assert all_taken(rdt, cache) == done()
    if all(other.shareable_bits for other in needs.caches_of(rdt.profile)):
        rdt.group("h")
        assert set(rdt.masks(cache.name, "h").values()) == {lowest_run(cache.shareable_bits)}
        return
    name = next(other.name for other in reversed(needs.caches_of(rdt.profile)) if not other.shareable_bits)
    before = rdt.ls()
    assert rdt.mkdir("h") == refused("ENOSPC", f"No space on {name}:0\n")
    assert rdt.ls() == before


@EMPTY_MASKS
def test_without_a_way_to_give_a_group_starts_with_none_where_that_is_a_mask(rdt, cache):
    assert all_taken(rdt, cache) == done()
    rdt.group("h")
    assert set(rdt.masks(cache.name, "h").values()) == {0}


def test_after_a_refused_mkdir_the_class_is_free_again(rdt, cache):
    """As many groups can be made afterwards as before."""
    closids = [one.num_closids for one in needs.caches_of(rdt.profile)]
    if rdt.profile.bandwidth:
        closids.append(rdt.profile.bandwidth.num_closids)
    assert all_taken(rdt, cache) == done()
    rdt.mkdir("h")
    rdt.mkdir("i")
    for group in ("h", "i"):
        if group in rdt.ls():
            assert rdt.rmdir(group).errno is None
    assert rdt.write("mode", "shareable\n") == done()
    for number in range(min(closids) - 2):
        rdt.group(f"g{number}")
    assert rdt.mkdir("more").errno == "ENOSPC"


@needs.BANDWIDTH
def test_a_new_group_has_all_bandwidth_whatever_its_class_had_before(rdt):
    rdt.group("g")
    assert rdt.write("g/schemata", "MB:0=50;1=50\n") == done()
    assert rdt.rmdir("g").errno is None
    rdt.group("h")
    assert set(rdt.bandwidths("h").values()) == {rdt.profile.bandwidth.max}
