# SPDX-License-Identifier: Apache-2.0
"""What sections about latencies have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median, quantiles
from typing import Any

from tests.worth.section import Curves, Table


def table(what: str, found: Mapping[str, Any]) -> Table:
    """How the events of each case are spread, from the least to the greatest."""
    titles = ("Mean", "Least", "Median", "Third quartile", "99 of 100", "Worst")
    return Table((what, *titles), [(case, *map(_shown, spread(one["all"]))) for case, one in found.items()])


def spread(events: Sequence[float]) -> tuple[float, ...]:
    """The mean, the least, the median, the third quartile, the 99th percentile and the greatest of some events."""
    parts = quantiles(events, n=100, method="inclusive")
    return fmean(events), min(events), median(events), parts[74], parts[98], max(events)


def _shown(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.1f} us"


def curves(name: str, title: str, found: Mapping[str, Any]) -> Curves:
    """All events of each case."""
    samples = {case: [event / 1000 for event in one["all"]] for case, one in found.items()}
    return Curves(name, title, "weighed time of an event, us", samples)


def times_better(found: Mapping[str, Any], worse: str, better: str, figure: str) -> float:
    """How many times one case's figure is another's."""
    return float(found[worse][figure] / max(1.0, found[better][figure]))
