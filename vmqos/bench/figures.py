# SPDX-License-Identifier: Apache-2.0
"""What the measurements say."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DRIFT = 0.1
"""How far the victim alone may differ before and after, as a part, until the host counts as not quiet."""


@dataclass(frozen=True, slots=True)
class Times:
    """One phase: how long the same work took, time after time.

    :ivar rounds: at least one; nanoseconds an access, or seconds a run of the operator's command.
    """

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The one in the middle: a single disturbance does not change it."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The bounds of the middle half of the times."""
        if len(self.rounds) == 1:
            return self.rounds[0], self.rounds[0]
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, high


PHASES = ("alone", "noisy", "protected")


def ratios(phases: Mapping[str, Times]) -> dict[str, float]:
    """How many times as long as alone it took beside the neighbour, and protected from it."""
    alone = phases["alone"].median
    return {name: phases[name].median / alone for name in PHASES[1:]}


def verdict(phases: Mapping[str, Times]) -> str:
    """What that means, in a sentence or two."""
    found = ratios(phases)
    noise_low, alone_high = phases["noisy"].spread[0], phases["alone"].spread[1]
    if noise_low <= alone_high:
        return (
            "The neighbour made no difference that stands out of the spread, so there was nothing to protect from: try "
            "more neighbours, more ways or a longer time."
        )
    text = f"Beside its neighbour the victim took {found['noisy']:.2f} times as long as alone"
    saved = (found["noisy"] - found["protected"]) / (found["noisy"] - 1)
    if saved <= 0:
        return (
            f"{text}, and with ways of its own no less: they were too few, or it is not the cache that they fight for."
        )
    return f"{text}, with ways of its own {found['protected']:.2f} times: they undid {min(saved, 1):.0%} of the damage."


def drift(first: Times, again: Times) -> str:
    """A remark where the victim alone was not as fast at the end as at the beginning; empty where it was."""
    change = again.median / first.median - 1
    if abs(change) <= DRIFT:
        return ""
    return (
        f"the host was not quiet: alone, the victim took {abs(change):.0%} {'more' if change > 0 else 'less'} at the "
        "end than at the beginning; distrust the ratios, and measure again"
    )


def as_json(times: Times) -> dict[str, float | Sequence[float]]:
    """One phase for programs."""
    low, high = times.spread
    return {"median": times.median, "low": low, "high": high, "rounds": list(times.rounds)}
