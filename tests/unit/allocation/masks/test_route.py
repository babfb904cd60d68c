# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.allocation.brute_force import Cache, can_be_reached
from tests.unit.allocation.examples import KEPT, carry_out, masks
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.machines import machine, request, uuid
from tests.unit.allocation.masks.test_packing import cache_ways, masks_on, needs
from vmqos.allocation import Policy
from vmqos.allocation.cache_ways import CacheWays, Need, WantedMask, run, runs, union
from vmqos.allocation.masks.route import POOL, Route, find
from vmqos.group_names import vm_group


def pool_beside(cache_ways: CacheWays, wanted_masks: list[WantedMask], choice: int) -> int:
    """One of the runs that the masks leave."""
    free = [run(*place) for place in runs(cache_ways.pool & ~union(wanted.held for wanted in wanted_masks))]
    return free[choice % len(free)] if free else 0


@given(st.data(), cache_ways(most=10), needs(), st.integers(0, 5))
def test_every_write_is_safe_and_the_last_ones_lie_within_the_packing(
    data: st.DataObject, cache_ways: CacheWays, need: Need, choice: int
) -> None:
    wanted_masks = data.draw(masks_on(cache_ways, 4))
    pool = pool_beside(cache_ways, wanted_masks, choice)
    route = find(cache_ways, wanted_masks, need, pool)
    assume(route is not None)
    assert route is not None
    now = {POOL: pool} | {wanted.key: wanted.held for wanted in wanted_masks if wanted.held}
    sizes = {wanted.key: min(wanted.length, wanted.held.bit_count()) for wanted in wanted_masks} | {
        POOL: max(cache_ways.fewest, min(need.width, pool.bit_count()))
    }
    for key, mask in route.writes:
        now[key] = mask
        assert cache_ways.legal(mask) and mask.bit_count() >= sizes[key]
        assert sum(now.values()) == union(now.values())
    packing = route.packing
    assert {wanted.key: packing.masks[wanted.key].bit_count() for wanted in wanted_masks} == {
        wanted.key: wanted.length for wanted in wanted_masks
    }
    assert not union(packing.masks.values()) & (~cache_ways.exclusive | packing.pool | now[POOL])
    assert sum(packing.masks.values()) == union(packing.masks.values())
    assert packing.pool.bit_count() >= need.width and not packing.pool & ~cache_ways.pool
    assert all(not now[key] & ~mask for key, mask in packing.masks.items() if key in now)


@given(st.data(), cache_ways(most=8), st.integers(1, 3), st.integers(0, 5))
def test_there_is_a_route_wherever_trying_every_write_finds_one(
    data: st.DataObject, cache_ways: CacheWays, width: int, choice: int
) -> None:
    wanted_masks = data.draw(masks_on(cache_ways, 3))
    # The plain search knows no mask on ways that it must leave, and no pool in company.
    assume(not cache_ways.company and not any(wanted.held & ~cache_ways.exclusive for wanted in wanted_masks))
    pool, need = pool_beside(cache_ways, wanted_masks, choice), Need(max(width, cache_ways.fewest), 0)
    assume(cache_ways.legal(pool))
    here = [wanted for wanted in wanted_masks if wanted.held]
    there_is_one = can_be_reached(
        Cache(cache_ways.every.bit_length(), cache_ways.pool, cache_ways.exclusive, need.width),
        pool,
        [wanted.held for wanted in here],
        [wanted.length for wanted in here],
        [wanted.length for wanted in wanted_masks if not wanted.held],
    )
    assert (find(cache_ways, wanted_masks, need, pool) is not None) == there_is_one


def cache_ways_of(width: int, exclusive: int = 0) -> CacheWays:
    every = run(0, width)
    return CacheWays(every, every, 0, exclusive or every, every & ~(exclusive or every), 1, False)


def test_nothing_is_written_where_there_is_room_already() -> None:
    found = find(cache_ways_of(8), [WantedMask("a", 2, 0b11), WantedMask("b", 2)], Need(2, 2), 0b11000000)
    assert found is not None and found.writes == () and found.packing.masks == {"a": 0b11, "b": 0b1100}


def test_the_pool_jumps_over_masks_to_ways_that_only_it_may_have() -> None:
    cache_ways = cache_ways_of(8, exclusive=0b00111111)
    wanted_masks = [WantedMask("a", 2, 0b000011), WantedMask("b", 2, 0b110000), WantedMask("c", 2)]
    found = find(cache_ways, wanted_masks, Need(2, 2), 0b001100)
    assert found is not None
    assert found.writes == ((POOL, 0b11000000),) and found.packing.masks["c"] == 0b001100


def test_who_is_where_it_may_not_be_goes_first_where_there_is_room() -> None:
    cache_ways = cache_ways_of(8, exclusive=0b00111111)
    found = find(cache_ways, [WantedMask("a", 2, 0b11000000)], Need(3, 3), 0b000111)
    assert isinstance(found, Route) and found.writes == (("a", 0b00011000),)


def test_a_pool_on_ways_that_it_shall_leave_leaves_them() -> None:
    cache_ways = CacheWays(0xFF, 0b11111100, 0, 0b11111100, 0, 1, False)
    found = find(cache_ways, [WantedMask("a", 2, 0b110000)], Need(2, 2), 0b11)
    assert found is not None and not found.packing.pool & 0b11 and found.packing.masks == {"a": 0b110000}


def test_there_is_none_where_two_that_fill_everything_would_swap() -> None:
    cache_ways = CacheWays(0b11111, 0b11111, 0, 0b00111, 0b11000, 1, False)
    assert find(cache_ways, [WantedMask("a", 3, 0b11100)], Need(2, 2), 0b00011) is None


def test_a_pool_with_too_few_ways_or_masks_with_gaps_are_not_for_it() -> None:
    assert find(cache_ways_of(4), [], Need(0, 0), 0b11) is None
    assert find(cache_ways_of(4), [], Need(2, 0), 0) is None
    assert find(CacheWays(15, 15, 0, 15, 0, 1, True), [], Need(2, 0), 0b11) is None


def test_a_vm_gets_its_ways_where_the_default_group_has_to_pass_others() -> None:
    kernel = Kernel(machine(20, shareable=0xC0000, fewest=2, closids=16))
    kernel.masks |= {
        "": {0: 0x3C00},
        vm_group(uuid(1)): {0: 0x3FF},
        vm_group(uuid(3)): {0: 0xC000},
        vm_group(uuid(4)): {0: 0x30000},
    }
    vms = [request(1, 10), request(3, 2), request(4, 2), request(5, 2)]
    found = carry_out(kernel, vms, Policy(default_ways_min=3))
    assert {verdict.state for verdict in found.values()} == {KEPT}
    assert masks(kernel)[""].bit_count() >= 3
