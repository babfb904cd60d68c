# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmqos.allocation.split import split


@pytest.mark.parametrize(
    ("ways", "code", "data", "parts"),
    [
        (0b111111, 2, 4, (0b000011, 0b111100)),
        (0b111100000, 1, 3, (0b000100000, 0b111000000)),
        (0b1111, 2, 4, (0b0011, 0b1111)),
        (0b11, 2, 4, (0b11, 0b11)),
        (0b1, 2, 4, (0b1, 0b1)),
        (0b11111111, 2, 4, (0b11, 0b11111100)),
        (0b110011, 1, 3, (0b000001, 0b110010)),
        (0b1111, 0, 0, (0b1111, 0b1111)),
    ],
)
def test_code_has_the_lowest_ways_and_data_the_others(ways: int, code: int, data: int, parts: tuple[int, int]) -> None:
    found = split(ways, code, data)
    assert (found.code.bits, found.data.bits) == parts


@given(st.integers(1, 0xFFFFF), st.integers(1, 9), st.integers(1, 9))
def test_the_parts_are_the_whole_and_no_smaller_than_they_can_be(ways: int, code: int, data: int) -> None:
    found, count = split(ways, code, data), ways.bit_count()
    assert (found.code | found.data).bits == ways
    assert found.code.count >= min(code, count) and found.data.count >= min(data, count)
    assert found.is_apart or count < code + data
