# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.pseudo_lock.exceptions import NoWaysToLock


@pytest.mark.parametrize(
    ("ways", "possible", "told"),
    [
        (1, 0, "no way of L3:0 is free to be locked (9 bytes, 10 bytes a way): none is. "),
        (2, 1, "no 2 neighbouring ways of L3:0 are free to be locked (9 bytes, 10 bytes a way): at most 1 way is, 10 "),
        (
            4,
            3,
            "no 4 neighbouring ways of L3:0 are free to be locked (9 bytes, 10 bytes a way): at most 3 ways are, ",
        ),
    ],
)
def test_how_many_ways_can_be_locked_is_told_in_words_that_fit(ways: int, possible: int, told: str) -> None:
    found = NoWaysToLock(ways=ways, possible=possible, cache="L3:0", size=9, way_size=10, floor=2)
    assert str(found).startswith(told) and str(found).endswith("the default group keeps 2")
