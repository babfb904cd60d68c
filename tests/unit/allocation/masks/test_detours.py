# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.allocation.masks.test_steps import CLASS, A, B, C, inputs, target
from vmqos.allocation.masks.detours import make_way
from vmqos.allocation.masks.progress import Progress


@pytest.mark.parametrize(
    ("now", "goal", "writes"),
    [
        pytest.param(
            {"": 0b11110000, A: 0b00001100},
            {"": 0b00001111, A: 0b00110000},
            [("", 0b11000000)],
            id="the default group leaves only what is wanted",
        ),
        pytest.param(
            {"": 0b11110000, CLASS: 0b00110000, A: 0b00001100},
            {"": 0b00001111, CLASS: 0b00000011, A: 0b11000000},
            [("", 0b00110000)],
            id="a class that is not in the way stays",
        ),
        pytest.param(
            {"": 0b11100000, A: 0b00001100, B: 0b00000011},
            {"": 0b11100000, A: 0b00000011, B: 0b00001100},
            [("", 0b11000000), (B, 0b00110000)],
            id="what the default group can spare is taken with a free way",
        ),
        pytest.param(
            {"": 0b1111000000, A: 0b0000001100, B: 0b0000000011, C: 0b110000},
            {"": 0b1100000000, A: 0b0000000011, B: 0b0000001100, C: 0b110000},
            [("", 0b0011000000), (B, 0b1100000000)],
            id="the default group keeps its floor",
        ),
    ],
)
def test_the_least_harm_is_chosen(
    now: Mapping[str, int], goal: Mapping[str, int], writes: list[tuple[str, int]]
) -> None:
    start = inputs(now)
    cache, found = make_way(Progress(start, target(start, goal)))
    names = {A: "A", B: "B"}
    assert (cache, [(names.get(name, name), f"{mask:b}") for name, mask in found]) == (
        0,
        [(names.get(name, name), f"{mask:b}") for name, mask in writes],
    )


def test_nobody_can_make_way_where_everybody_is_as_small_as_may_be() -> None:
    start = inputs({"": 0b1100, A: 0b0011}, fewest=2)
    assert make_way(Progress(start, target(start, {"": 0b0011, A: 0b1100}))) == (0, [])
