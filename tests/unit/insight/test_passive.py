# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import pytest

from vmqos.insight.model import Counts, Sample
from vmqos.insight.passive import passive
from vmqos.insight.size import FEWEST

WAYS, WAY = 10, 100.0
Row = tuple[float, float, float]
"""Ways' worth that is held, the share of references that miss, and references for each instruction."""


def samples(rows: Sequence[Row], *, counted: bool = True) -> list[Sample]:
    return [
        Sample(
            float(at),
            {0: held * WAY / 2, 1: held * WAY / 2},
            None,
            Counts(2000.0, 1000.0, 1000.0 * work, 1000.0 * work * missed) if counted else None,
        )
        for at, (held, missed, work) in enumerate(rows)
    ]


def levels(*of: tuple[float, float]) -> list[Row]:
    """Each level for long enough to count."""
    return [(held, missed, 0.1) for held, missed in of for _ in range(FEWEST + 1)]


def test_what_a_vm_missed_while_it_held_less_is_the_curve() -> None:
    found = passive(samples(levels((10, 0.3), (7.2, 0.5), (5.9, 0.6), (10, 0.3))), WAYS, WAY)
    assert (found.why_not, found.least, found.most) == ("", 5.9, 10.0)
    assert found.curve == pytest.approx({6: 0.6, 7: 0.5, 10: 0.3})
    assert found.samples == {6: FEWEST, 7: FEWEST, 10: 2 * FEWEST}
    assert found.knee == 10


def test_the_curve_never_rises_and_its_knee_is_the_fewest_that_are_nearly_as_good() -> None:
    found = passive(samples(levels((10, 0.52), (8, 0.50), (6, 0.53), (4, 0.6))), WAYS, WAY)
    assert found.curve == pytest.approx({4: 0.6, 6: 0.53, 8: 0.51, 10: 0.51}, abs=0.003)
    assert found.knee == 6


def test_with_little_that_it_holds_nothing_is_told() -> None:
    found = passive(samples(levels((10, 0.3), (6, 0.5), (2, 0.6))), WAYS, WAY)
    assert list(found.curve) == [6, 10] and found.least == 2.0


def test_while_it_gains_or_loses_lines_nothing_counts() -> None:
    falling = [(10 - 0.3 * at, 0.9, 0.1) for at in range(1, 14)]
    found = passive(samples([*levels((10, 0.3)), *falling, *levels((6, 0.5))]), WAYS, WAY)
    assert found.curve == pytest.approx({6: 0.5, 10: 0.3})


def test_samples_of_other_work_do_not_count() -> None:
    other = [(8.0, 0.9, 0.2)] * (FEWEST + 1)
    found = passive(samples([*levels((10, 0.3), (6, 0.5), (10, 0.3)), *other]), WAYS, WAY)
    assert list(found.curve) == [6, 10]


@pytest.mark.parametrize(
    ("rows", "counted", "why_not"),
    [
        ([], True, "too few samples"),
        (levels((10, 0.3), (6, 0.5)), False, "nothing counts its misses of the L3"),
        (levels((10, 0.3))[:2], False, "too few samples count misses"),
        (levels((9.7, 0.3), (6, 0.5)), True, "it held 97 % of what it may fill at most"),
        (levels((10, 0.05), (6, 0.5)), True, "it misses next to nothing when it fills all"),
        (levels((10, 0.3)), True, "it held about as much all the time"),
        ([(10, 0.3, 0.1 * 1.3**at) for at in range(12)], True, "its work changes"),
    ],
)
def test_where_its_past_tells_nothing_it_is_said_why(rows: list[Row], counted: bool, why_not: str) -> None:
    found = passive(samples(rows, counted=counted), WAYS, WAY)
    assert why_not in found.why_not and not found.curve and not found.samples
