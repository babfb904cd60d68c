# SPDX-License-Identifier: Apache-2.0
"""Sets of CPUs are shown and read as the kernel does."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.simulator.kernel.cpus import format_list, format_mask, parse_list, parse_mask

COUNTS = st.integers(1, 200)


@st.composite
def _sets(draw: st.DrawFn) -> tuple[frozenset[int], int]:
    count = draw(COUNTS)
    return frozenset(draw(st.sets(st.integers(0, count - 1)))), count


@given(_sets())
def test_a_mask_that_was_shown_is_read_back(case: tuple[frozenset[int], int]) -> None:
    cpus, count = case
    assert parse_mask(format_mask(cpus, count), count) == cpus


@given(_sets())
def test_a_list_that_was_shown_is_read_back(case: tuple[frozenset[int], int]) -> None:
    cpus, count = case
    assert parse_list(format_list(cpus), count) == cpus


@pytest.mark.parametrize(
    ("cpus", "count", "mask"),
    [
        ({0, 1, 2, 3}, 4, "f"),
        (set(), 4, "0"),
        ({0}, 9, "001"),
        ({31, 32}, 40, "01,80000000"),
        ({63}, 64, "80000000,00000000"),
    ],
)
def test_a_mask_has_the_machines_width(cpus: set[int], count: int, mask: str) -> None:
    assert format_mask(cpus, count) == mask


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-1,3\n", {0, 1, 3}),
        ("\n", set()),
        (" 2 , 3 \n", {2, 3}),
        ("all", {0, 1, 2, 3}),
        ("N", {3}),
        ("0-N", {0, 1, 2, 3}),
        ("0-3:1/2", {0, 2}),
    ],
)
def test_a_list_may_have_ranges_and_words(text: str, cpus: set[int]) -> None:
    assert parse_list(text, 4) == cpus


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("9", errno.ERANGE),
        ("0-9", errno.ERANGE),
        ("a", errno.EINVAL),
        ("2-1", errno.EINVAL),
        ("0-", errno.EINVAL),
        ("0+1", errno.EINVAL),
        ("0-3:1", errno.EINVAL),
        ("0-3:2/1", errno.EINVAL),
        ("0-3:1/0", errno.EINVAL),
        ("99999999999", errno.EOVERFLOW),
    ],
)
def test_a_bad_list_is_refused(text: str, code: int) -> None:
    with pytest.raises(OSError) as refused:
        parse_list(text, 4)
    assert refused.value.errno == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ff", errno.EOVERFLOW),
        ("bad", errno.EOVERFLOW),
        ("xyz", errno.EINVAL),
        ("0x3", errno.EINVAL),
        ("1,00000001", errno.EOVERFLOW),
        ("123456789", errno.EOVERFLOW),
    ],
)
def test_a_bad_mask_is_refused(text: str, code: int) -> None:
    with pytest.raises(OSError) as refused:
        parse_mask(text, 4)
    assert refused.value.errno == code


def test_an_empty_mask_is_no_cpu() -> None:
    assert parse_mask("\n", 4) == frozenset()
