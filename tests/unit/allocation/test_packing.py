# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.allocation import every_place
from vmqos.allocation.fitting import fits
from vmqos.allocation.line import Line, Need, longest_run, run, union
from vmqos.allocation.packing import Packing, Piece, pack


@st.composite
def lines(draw: st.DrawFn, most: int = 9, sparse: bool = False) -> Line:
    width = draw(st.integers(4, most))
    every = run(0, width)
    blocked = draw(st.integers(0, every)) & draw(st.integers(0, every)) & draw(st.integers(0, every))
    company = blocked & draw(st.integers(0, every))
    shareable = draw(st.sampled_from([0, 0, 1 << (width - 1), 3 << (width - 2), 1]))
    exclusive = every & ~blocked & ~(shareable if draw(st.booleans()) else 0)
    return Line(every, every & ~blocked | company, company, exclusive, shareable, draw(st.integers(1, 2)), sparse)


@st.composite
def pieces_on(draw: st.DrawFn, line: Line, most: int = 4) -> list[Piece]:
    """Masks that lie side by side, and how long they are to be; some are new, some in places that they must leave."""
    pieces, taken = [], 0
    for number in range(draw(st.integers(0, most))):
        held, length = 0, draw(st.integers(line.fewest, max(line.fewest, line.width // 2)))
        if draw(st.integers(0, 3)):
            start = draw(st.integers(0, line.width - line.fewest))
            held = run(start, min(length, line.width - start)) & line.every
            if held & taken or held.bit_count() < line.fewest:
                held = 0
            elif draw(st.booleans()):
                length = held.bit_count()
        taken |= held
        pieces.append(Piece(str(number), length, held))
    return pieces


@st.composite
def needs(draw: st.DrawFn) -> Need:
    width = draw(st.sampled_from([0, 2, 3, 4]))
    return Need(width, draw(st.integers(0, min(width, 2))))


def moved(pieces: list[Piece], found: Packing) -> int:
    return sum(every_place.is_moved(piece.held, found.masks[piece.key]) for piece in pieces)


@given(st.data(), lines(), needs())
def test_no_packing_moves_fewer_masks(data: st.DataObject, line: Line, need: Need) -> None:
    pieces = data.draw(pieces_on(line))
    lengths, held = [piece.length for piece in pieces], [piece.held for piece in pieces]
    least = every_place.fewest_moves(line, lengths, held, need)
    assume(least is not None)
    found = pack(line, pieces, need)
    assert moved(pieces, found) == least


@given(st.data(), lines(most=20), needs())
def test_masks_lie_side_by_side_where_they_may(data: st.DataObject, line: Line, need: Need) -> None:
    pieces = data.draw(pieces_on(line, 6))
    assume(fits(line, [piece.length for piece in pieces], need))
    found = pack(line, pieces, need)
    masks = [found.masks[piece.key] for piece in pieces]
    assert [mask.bit_count() for mask in masks] == [piece.length for piece in pieces]
    assert [longest_run(mask) for mask in masks] == [piece.length for piece in pieces]
    assert sum(masks) == union(masks) and not union(masks) & (~line.exclusive | found.pool)
    assert found.pool.bit_count() == longest_run(found.pool) >= need.width
    assert not found.pool & ~line.pool and (found.pool & ~line.company).bit_count() >= need.clean


@given(st.data(), lines(most=20, sparse=True), needs())
def test_a_mask_that_may_have_gaps_leaves_no_way_that_it_may_keep(data: st.DataObject, line: Line, need: Need) -> None:
    pieces = data.draw(pieces_on(line, 6))
    assume(fits(line, [piece.length for piece in pieces], need))
    found = pack(line, pieces, need)
    masks = [found.masks[piece.key] for piece in pieces]
    assert [mask.bit_count() for mask in masks] == [piece.length for piece in pieces]
    assert sum(masks) == union(masks) and not union(masks) & ~line.exclusive
    assert found.pool == line.pool & ~union(masks)
    for piece, mask in zip(pieces, masks, strict=True):
        may_keep = piece.held & line.exclusive
        assert may_keep & mask in (may_keep, mask)


@given(st.data(), lines(most=16), needs())
def test_a_packing_that_is_in_force_stays(data: st.DataObject, line: Line, need: Need) -> None:
    pieces = data.draw(pieces_on(line, 5))
    assume(fits(line, [piece.length for piece in pieces], need))
    first = pack(line, pieces, need)
    again = pack(line, [Piece(piece.key, piece.length, first.masks[piece.key]) for piece in pieces], need)
    assert again == first


LINE = Line(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 1, False)


@pytest.mark.parametrize(
    ("pieces", "pool", "masks"),
    [
        pytest.param([], 0x7FF, {}, id="the pool has everything"),
        pytest.param([Piece("a", 2)], 0x7FC, {"a": 0x3}, id="the first mask is at the end that I/O does not fill"),
        pytest.param([Piece("a", 2), Piece("b", 3)], 0x7E0, {"a": 0x18, "b": 0x7}, id="longer masks lie lower"),
        pytest.param([Piece("b", 2), Piece("a", 2)], 0x7F0, {"a": 0xC, "b": 0x3}, id="of equals the first lies lower"),
        pytest.param([Piece("a", 4, 0x3)], 0x7F0, {"a": 0xF}, id="a mask grows in place"),
        pytest.param([Piece("a", 1, 0xC)], 0x7F8, {"a": 0x4}, id="a mask shrinks in place so that the pool gains most"),
        pytest.param([Piece("b", 2), Piece("a", 2, 0x3)], 0x7F0, {"a": 0x3, "b": 0xC}, id="what lies lies"),
        pytest.param([Piece("a", 2, 0x18), Piece("b", 7)], 0x600, {"a": 0x180, "b": 0x7F}, id="a move makes room"),
    ],
)
def test_where_masks_go(pieces: list[Piece], pool: int, masks: dict[str, int]) -> None:
    found = pack(LINE, pieces, Need(2, 2))
    assert (found.pool, found.masks) == (pool, masks)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        pack(LINE, [Piece("a", 10)], Need(2, 2))
    with pytest.raises(ValueError, match="do not fit"):
        pack(Line(0xF, 0xF, 0, 0xF, 0, 1, True), [Piece("a", 5)], Need(0, 0))
