# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vmqos.cli.show.marks import allot

NAMES = st.lists(st.text(max_size=8), unique=True, max_size=40)


@given(NAMES, st.integers(1, 60))
def test_whoever_comes_changes_no_mark_of_those_that_are_there(names: list[str], count: int) -> None:
    whole = allot(names, count)
    for length in range(len(names)):
        before = allot(names[:length], count)
        assert before == {name: whole[name] for name in names[:length]}


@given(NAMES, st.integers(1, 60))
def test_no_number_is_given_out_twice_and_none_before_all_lower_rounds_are(names: list[str], count: int) -> None:
    numbers = sorted(allot(names, count).values())
    assert len(set(numbers)) == len(names)
    rounds = [number // count for number in numbers]
    assert all(rounds.count(one) == count for one in set(rounds) - {max(rounds, default=0)})


def test_a_mark_follows_from_the_name() -> None:
    # 0xbf9cf968 is FNV-1a's value of "foobar" in the test vectors of its authors.
    assert allot(["foobar"], 1000)["foobar"] == 0xBF9CF968 % 1000
