# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from vmqos.allocation.line import Line, Need
from vmqos.allocation.packing import Piece
from vmqos.allocation.room import furnish

LINE = Line(0x7FF, 0x7FF, 0, 0x1FF, 0x600, 1, False)


def test_the_pool_has_its_floor_and_what_classes_were_granted() -> None:
    assert furnish(LINE, [Piece("a", 3, 0x7)], 2).need == Need(2, 2)
    assert furnish(LINE, [Piece("a", 3, 0x7)], 2, granted=5).need == Need(5, 2)


def test_what_a_class_was_granted_gives_way_to_masks_that_are_there() -> None:
    room = furnish(LINE, [Piece("a", 3, 0x7)], 2, granted=10)
    assert room.need == Need(8, 2) and not room.closed


def test_a_mask_on_ways_that_a_foreign_group_took_is_placed_anew() -> None:
    room = furnish(LINE.without(0x6), [Piece("a", 3, 0x7)], 2)
    assert room.pieces == {"a": Piece("a", 3, 0x7)} and not room.stuck


def test_where_there_is_no_room_it_is_stuck_and_nobody_else_is_given_its_ways() -> None:
    room = furnish(LINE.without(0xF0), [Piece("a", 6, 0x3F)], 2)
    assert room.stuck == {"a": 0x3F} and not room.pieces
    assert not room.line.pool & 0x3F
    assert room.takes("b", 1) and not room.takes("a", 7) and room.most("a") == 0


def test_of_several_that_can_not_all_move_the_first_to_come_moves() -> None:
    line = LINE.without(0xFF)
    room = furnish(line, [Piece("a", 1, 0x3), Piece("b", 1, 0xC)], 2)
    assert set(room.pieces) == {"a"} and set(room.stuck) == {"b"}


def test_a_stuck_mask_shrinks_away_from_what_is_not_its_own() -> None:
    assert furnish(LINE.without(0x1F7), [Piece("a", 2, 0xF)], 2).stuck == {"a": 0xC}


def test_nothing_is_promised_while_the_default_group_lacks_ways_of_its_own() -> None:
    line = LINE.without(0x7FE).with_company(0x700)
    room = furnish(line, [], 2)
    assert room.need == Need(2, 0) and room.closed
    assert not room.takes("a", 1) and room.most("a") == 0


def test_a_frozen_room_keeps_every_mask_in_its_place() -> None:
    room = furnish(LINE.without(0x1), [Piece("a", 2, 0x3), Piece("b", 2, 0xC)], 2, frozen=True)
    assert room.stuck == {"a": 0x3, "b": 0xC} and room.closed


def test_the_pool_grows_as_far_as_there_is_room_and_never_shrinks() -> None:
    room = furnish(LINE, [Piece("a", 3, 0x7)], 2)
    room.raise_pool(6)
    assert room.need == Need(6, 2) and room.most("b") == 2
    room.raise_pool(4)
    assert room.need == Need(6, 2)
    room.raise_pool(20)
    assert room.need == Need(8, 2) and room.most("b") == 0


def test_what_others_have_is_counted_without_the_vm_itself() -> None:
    room = furnish(LINE.without(0x3), [Piece("a", 2, 0x3), Piece("b", 3, 0x1C)], 2, frozen=True)
    assert room.taken() == 5 and room.taken("a") == 3 and room.taken("b") == 2
