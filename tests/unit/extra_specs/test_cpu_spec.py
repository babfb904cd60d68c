# SPDX-License-Identifier: Apache-2.0
"""Nova's notation for a set of CPUs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.extra_specs import cpu_spec

ALLOWED = {
    "0": {0},
    "0-3": {0, 1, 2, 3},
    "0-3,^2": {0, 1, 3},
    "^2,0-3": {0, 1, 3},
    "0-3,^1-2": {0, 3},
    "5,1,3": {1, 3, 5},
    "1,1-2,2": {1, 2},
    " 0 - 1 , 3 ": {0, 1, 3},
    "7-7": {7},
    "9999": {9999},
}


@given(st.sets(st.integers(0, 40), min_size=1))
def test_a_shown_list_names_the_same_cpus(cpus: set[int]) -> None:
    assert cpu_spec.parse(cpu_spec.show(cpus)) == cpus


@pytest.mark.parametrize(("cpus", "text"), [((3, 0, 1, 2, 8), "0-3,8"), ((7,), "7"), ((0, 1), "0-1"), ((), "")])
def test_a_list_is_shown_as_short_as_can_be(cpus: tuple[int, ...], text: str) -> None:
    assert cpu_spec.show(cpus) == text


@pytest.mark.parametrize("text", ALLOWED)
def test_a_spec_names_its_cpus(text: str) -> None:
    assert cpu_spec.parse(text) == ALLOWED[text]


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "a", "-1", "1-", "3-1", "^1", "1,^1", "0-3,^0-9", "1 2", "^^1", "10000", "\u0661", "1\n"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        cpu_spec.parse(text)


@given(st.sets(st.integers(0, 9999), min_size=1))
def test_a_list_of_numbers_is_read_back(cpus: set[int]) -> None:
    assert cpu_spec.parse(",".join(map(str, cpus))) == cpus


@given(st.text(alphabet="0123456789-^, ", max_size=12))
def test_what_is_read_matches_the_pattern_and_leaves_a_cpu(text: str) -> None:
    try:
        cpus = cpu_spec.parse(text)
    except ValueError:
        return
    assert re.fullmatch(cpu_spec.PATTERN, text)
    assert cpus
