# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.bench import figures
from vmqos.bench.figures import Times


def phases(alone: float, noisy: float, protected: float) -> dict[str, Times]:
    return {name: Times((value * 0.99, value, value * 1.01)) for name, value in locals().items()}


def test_one_disturbed_round_changes_neither_median_nor_spread_much() -> None:
    times = Times((10, 11, 12, 11, 10, 500))
    assert times.median == 11
    assert times.spread[1] < 12
    assert Times((3.0,)).spread == (3.0, 3.0)


def test_ratios_are_to_the_victim_alone() -> None:
    assert figures.ratios(phases(20, 60, 22)) == pytest.approx({"noisy": 3.0, "protected": 1.1})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((20, 60, 22), "3.00 times as long as alone, with ways of its own 1.10 times: they undid 95% of the damage"),
        ((20, 60, 19), "they undid 100% of the damage"),
        ((20, 60, 66), "with ways of its own no less"),
        ((20, 20.1, 20), "no difference that stands out of the spread"),
        ((20, 15, 20), "no difference that stands out of the spread"),
    ],
)
def test_the_verdict_says_what_the_figures_mean(values: tuple[float, float, float], words: str) -> None:
    assert words in figures.verdict(phases(*values))


def test_a_host_that_was_not_quiet_is_told_of() -> None:
    assert figures.drift(Times((20.0,)), Times((21.0,))) == ""
    assert "took 50% more at the end" in figures.drift(Times((20.0,)), Times((30.0,)))
    assert "took 50% less at the end" in figures.drift(Times((20.0,)), Times((10.0,)))
