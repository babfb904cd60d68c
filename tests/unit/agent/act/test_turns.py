# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from vmqos.agent.act.turns import line_up, next_turn


def uuids(count: int) -> list[str]:
    return [f"vm-{number}" for number in range(count)]


@given(st.integers(1, 40), st.integers(1, 40))
def test_each_vm_is_served_in_as_few_turns_as_can_be(vms: int, room: int) -> None:
    needs = dict.fromkeys(uuids(vms), 1)
    turns = ceil(vms / room)
    line: tuple[str, ...] = ()
    served = []
    for _ in range(3 * turns):
        turn = next_turn(line, needs, room)
        assert len(turn.served) == min(vms, room)
        line = turn.line
        served.append(turn.served)
    for first in range(2 * turns + 1):
        assert frozenset[str]().union(*served[first : first + turns]) == set(needs)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=20), st.integers(0, 12))
def test_no_turn_takes_more_than_there_is_and_each_vm_that_fits_is_served(sizes: list[int], room: int) -> None:
    needs = dict(zip(uuids(len(sizes)), sizes, strict=True))
    fit = {uuid for uuid, size in needs.items() if size <= room}
    line: tuple[str, ...] = ()
    served = set[str]()
    for _ in sizes:
        turn = next_turn(line, needs, room)
        assert sum(needs[uuid] for uuid in turn.served) <= room
        assert sorted(turn.line) == sorted(needs)
        line = turn.line
        served |= turn.served
    assert served == fit


@given(st.data())
def test_vms_that_come_and_go_make_no_other_one_wait_longer(data: st.DataObject) -> None:
    room, known = data.draw(st.integers(1, 5)), uuids(30)
    stays = known[9]
    line: tuple[str, ...] = tuple(known[:10])
    left = ceil(10 / room)
    while stays not in (turn := next_turn(line, _present(data, stays, known), room)).served:
        left -= 1
        line = turn.line
    assert left > 0


def _present(data: st.DataObject, stays: str, known: list[str]) -> dict[str, int]:
    return dict.fromkeys((stays, *data.draw(st.sets(st.sampled_from(known)))), 1)


def test_a_newcomer_goes_to_the_end_and_who_left_is_forgotten() -> None:
    assert line_up(("b", "gone", "a"), {"a": 1, "b": 1, "new": 1}) == ("b", "a", "new")


def test_where_there_is_enough_everyone_is_served_each_time() -> None:
    needs = {"a": 1, "b": 2}
    turn = next_turn((), needs, 3)
    assert turn.served == {"a", "b"}
    assert next_turn(turn.line, needs, 3).served == {"a", "b"}
