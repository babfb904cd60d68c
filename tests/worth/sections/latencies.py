# SPDX-License-Identifier: Apache-2.0
"""What sections about latencies have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import Curves, Table


def table(what: str, found: Mapping[str, Any]) -> Table:
    """Mean, median and worst of each case."""
    return Table(
        (what, "Mean", "Median", "Worst"),
        [
            (case, *(f"{one[figure] / 1000:.1f} us" for figure in ("mean", "median", "worst")))
            for case, one in found.items()
        ],
    )


def curves(name: str, title: str, found: Mapping[str, Any]) -> Curves:
    """All events of each case."""
    samples = {case: [event / 1000 for event in one["all"]] for case, one in found.items()}
    return Curves(name, title, "weighed time of an event, us", samples)


def times_better(found: Mapping[str, Any], worse: str, better: str, figure: str) -> float:
    """How many times one case's figure is another's."""
    return float(found[worse][figure] / max(1.0, found[better][figure]))
