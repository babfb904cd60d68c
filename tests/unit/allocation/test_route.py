# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.allocation.brute_force import Cache, can_be_reached
from tests.unit.allocation.examples import KEPT, carry_out, masks
from tests.unit.allocation.kernel import Kernel
from tests.unit.allocation.test_packing import lines, needs, pieces_on
from tests.unit.allocation.worlds import machine, request, uuid
from vmqos.allocation import Policy
from vmqos.allocation.line import Line, Need, run, runs, union
from vmqos.allocation.packing import Piece
from vmqos.allocation.route import POOL, Route, find
from vmqos.group_names import vm_group


def pool_beside(line: Line, pieces: list[Piece], choice: int) -> int:
    """One of the runs that the pieces leave."""
    free = [run(*place) for place in runs(line.pool & ~union(piece.held for piece in pieces))]
    return free[choice % len(free)] if free else 0


@given(st.data(), lines(most=10), needs(), st.integers(0, 5))
def test_every_write_is_safe_and_the_last_ones_lie_within_the_packing(
    data: st.DataObject, line: Line, need: Need, choice: int
) -> None:
    pieces = data.draw(pieces_on(line, 4))
    pool = pool_beside(line, pieces, choice)
    route = find(line, pieces, need, pool)
    assume(route is not None)
    assert route is not None
    now = {POOL: pool} | {piece.key: piece.held for piece in pieces if piece.held}
    sizes = {piece.key: min(piece.length, piece.held.bit_count()) for piece in pieces} | {
        POOL: max(line.fewest, min(need.width, pool.bit_count()))
    }
    for key, mask in route.writes:
        now[key] = mask
        assert line.legal(mask) and mask.bit_count() >= sizes[key]
        assert sum(now.values()) == union(now.values())
    packing = route.packing
    assert {piece.key: packing.masks[piece.key].bit_count() for piece in pieces} == {
        piece.key: piece.length for piece in pieces
    }
    assert not union(packing.masks.values()) & (~line.exclusive | packing.pool | now[POOL])
    assert sum(packing.masks.values()) == union(packing.masks.values())
    assert packing.pool.bit_count() >= need.width and not packing.pool & ~line.pool
    assert all(not now[key] & ~mask for key, mask in packing.masks.items() if key in now)


@given(st.data(), lines(most=8), st.integers(1, 3), st.integers(0, 5))
def test_there_is_a_route_wherever_trying_every_write_finds_one(
    data: st.DataObject, line: Line, width: int, choice: int
) -> None:
    pieces = data.draw(pieces_on(line, 3))
    # The plain search knows no mask on ways that it must leave, and no pool in company.
    assume(not line.company and not any(piece.held & ~line.exclusive for piece in pieces))
    pool, need = pool_beside(line, pieces, choice), Need(max(width, line.fewest), 0)
    assume(line.legal(pool))
    here = [piece for piece in pieces if piece.held]
    there_is_one = can_be_reached(
        Cache(line.width, line.pool, line.exclusive, need.width),
        pool,
        [piece.held for piece in here],
        [piece.length for piece in here],
        [piece.length for piece in pieces if not piece.held],
    )
    assert (find(line, pieces, need, pool) is not None) == there_is_one


def line_of(width: int, exclusive: int = 0) -> Line:
    every = run(0, width)
    return Line(every, every, 0, exclusive or every, every & ~(exclusive or every), 1, False)


def test_nothing_is_written_where_there_is_room_already() -> None:
    found = find(line_of(8), [Piece("a", 2, 0b11), Piece("b", 2)], Need(2, 2), 0b11000000)
    assert found is not None and found.writes == () and found.packing.masks == {"a": 0b11, "b": 0b1100}


def test_the_pool_jumps_over_masks_to_ways_that_only_it_may_have() -> None:
    line = line_of(8, exclusive=0b00111111)
    pieces = [Piece("a", 2, 0b000011), Piece("b", 2, 0b110000), Piece("c", 2)]
    found = find(line, pieces, Need(2, 2), 0b001100)
    assert found is not None
    assert found.writes == ((POOL, 0b11000000),) and found.packing.masks["c"] == 0b001100


def test_who_is_where_it_may_not_be_goes_first_where_there_is_room() -> None:
    line = line_of(8, exclusive=0b00111111)
    found = find(line, [Piece("a", 2, 0b11000000)], Need(3, 3), 0b000111)
    assert isinstance(found, Route) and found.writes == (("a", 0b00011000),)


def test_a_pool_on_ways_that_it_shall_leave_leaves_them() -> None:
    line = Line(0xFF, 0b11111100, 0, 0b11111100, 0, 1, False)
    found = find(line, [Piece("a", 2, 0b110000)], Need(2, 2), 0b11)
    assert found is not None and not found.packing.pool & 0b11 and found.packing.masks == {"a": 0b110000}


def test_there_is_none_where_two_that_fill_everything_would_swap() -> None:
    line = Line(0b11111, 0b11111, 0, 0b00111, 0b11000, 1, False)
    assert find(line, [Piece("a", 3, 0b11100)], Need(2, 2), 0b00011) is None


def test_a_pool_with_too_few_ways_or_masks_with_gaps_are_not_for_it() -> None:
    assert find(line_of(4), [], Need(0, 0), 0b11) is None
    assert find(line_of(4), [], Need(2, 0), 0) is None
    assert find(Line(15, 15, 0, 15, 0, 1, True), [], Need(2, 0), 0b11) is None


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
