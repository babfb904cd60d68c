# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.allocation.oracle import is_moved
from tests.unit.allocation.test_packing import lines, needs, pieces_on
from tests.unit.allocation.test_steps import target, world
from tests.unit.allocation.worlds import uuid
from vmqos.allocation import WriteMasks, vm_group
from vmqos.allocation.fitting import fits
from vmqos.allocation.line import Line, Need, longest_run, lowest, run, runs, union
from vmqos.allocation.packing import Packing, Piece, pack
from vmqos.allocation.sliding import slide
from vmqos.allocation.steps import prepare


def order(masks: dict[str, int]) -> list[str]:
    return sorted((key for key, mask in masks.items() if mask), key=lambda key: lowest(masks[key]))


def pool_beside(line: Line, pieces: list[Piece], choice: int) -> int:
    """One of the runs that the pieces leave."""
    free = [run(*place) for place in runs(line.pool & ~union(piece.held for piece in pieces))]
    return free[choice % len(free)] if free else 0


@given(st.data(), lines(most=16), needs(), st.integers(0, 5))
def test_no_mask_passes_another(data: st.DataObject, line: Line, need: Need, choice: int) -> None:
    pieces = data.draw(pieces_on(line, 5))
    pool = pool_beside(line, pieces, choice)
    found = slide(line, pieces, need, pool)
    assume(found is not None)
    assert found is not None
    masks = [found.masks[piece.key] for piece in pieces]
    assert [longest_run(mask) for mask in masks] == [piece.length for piece in pieces]
    assert sum(masks) == union(masks) and not union(masks) & (~line.exclusive | found.pool)
    assert found.pool.bit_count() == longest_run(found.pool) >= need.width and not found.pool & ~line.pool
    now = {piece.key: piece.held for piece in pieces} | {"pool": pool if found.pool else 0}
    then = {key: found.masks.get(key, found.pool) for key in order(now)}
    assert order(then) == order(now)


@given(st.data(), st.integers(4, 16), needs(), st.integers(0, 5))
def test_where_nobody_is_in_between_whatever_fits_can_be_pushed_together(
    data: st.DataObject, width: int, need: Need, choice: int
) -> None:
    every = run(0, width)
    line = Line(every, every, 0, every, 0, 1, False)
    pieces = data.draw(pieces_on(line, 5))
    assume(fits(line, [piece.length for piece in pieces], need))
    found = slide(line, pieces, need, pool_beside(line, pieces, choice))
    assert found is not None
    least = pack(line, pieces, need)
    assert moves(pieces, found) >= moves(pieces, least)


def test_where_the_pool_needs_no_way_the_pieces_may_have_them_all() -> None:
    line = Line(15, 15, 0, 15, 0, 1, False)
    pieces = [Piece("low", 2, 3), Piece("high", 2, 12)]
    assert slide(line, pieces, Need(0, 0), 0) == Packing(0, {"low": 3, "high": 12})


def moves(pieces: list[Piece], found: Packing) -> int:
    return sum(is_moved(piece.held, found.masks[piece.key]) for piece in pieces)


@given(st.data(), lines(most=16), st.integers(0, 5))
def test_the_way_there_is_always_clear(data: st.DataObject, line: Line, choice: int) -> None:
    names = {str(number): vm_group(uuid(0xA + number)) for number in range(3)}
    pieces = [piece for piece in data.draw(pieces_on(line, 3)) if piece.held]
    pool = pool_beside(line, pieces, choice)
    assume(line.legal(pool))
    found = slide(line, pieces, Need(line.fewest, 0), pool)
    assume(found is not None)
    assert found is not None
    now = {"": pool} | {names[piece.key]: piece.held for piece in pieces}
    start = world(now, ways=line.width, fewest=line.fewest, floor=1)
    goal = {"": found.pool} | {names[key]: mask for key, mask in found.masks.items()}
    written = [step.group for step in prepare(start, target(start, goal)) if isinstance(step, WriteMasks)]
    assert len(set(written) - {""}) == len(written) - written.count("")


def test_a_new_mask_comes_in_between_if_that_moves_fewest() -> None:
    line = Line(0xFF, 0xFF, 0, 0xFF, 0, 1, False)
    pieces = [Piece("a", 2, 0b11), Piece("b", 2, 0b110000), Piece("c", 2)]
    assert slide(line, pieces, Need(2, 2), 0b11000000) == Packing(0b11000000, {"a": 0b11, "b": 0b110000, "c": 0b1100})
