# SPDX-License-Identifier: Apache-2.0
"""Making an experiment some times over: how fast one VM is beside another is another in each round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

ROUNDS = 3


def mean_of(measure: Callable[[], Any]) -> Any:
    """What a measurement finds in the mean of :data:`ROUNDS`: numbers, or mappings and lists of such."""
    return _mean([measure() for _ in range(ROUNDS)])


def _mean(rounds: list[Any]) -> Any:
    first = rounds[0]
    if isinstance(first, Mapping):
        return {key: _mean([one[key] for one in rounds]) for key in first}
    if isinstance(first, list):
        return [_mean(list(of_all)) for of_all in zip(*rounds, strict=True)]
    return statistics.fmean(rounds)
