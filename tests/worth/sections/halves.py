# SPDX-License-Identifier: Apache-2.0
"""Two halves of the cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import SAME, Bars, Claim, Section, Table


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.halves.run`."""
    before, after = found["without classes"], found["with classes"]
    return Section(
        "Two halves of the cores",
        "A common demonstration, without figures of its own: two tasks on two halves of the cores, without classes and "
        "with one each; the misses are counted.",
        "One VM follows pointers through 1.25 MiB on CPUs 0 and 1, the other reads 16 MiB at random on 2 and 3. With "
        "classes each has ``hw:cache_ways=7`` (the default group keeps two).",
        [
            Table(
                ("Case", "Misses of the one in 1000 accesses", "of the other", "Miss ratios"),
                [
                    (
                        case,
                        f"{one['reuser']['per_1000']:.0f}",
                        f"{one['scanner']['per_1000']:.0f}",
                        f"{one['reuser']['miss_ratio']:.3f}, {one['scanner']['miss_ratio']:.3f}",
                    )
                    for case, one in found.items()
                ],
            )
        ],
        [
            Bars(
                "halves",
                "Misses of two VMs on two halves of the cores",
                "misses in 1000 accesses",
                list(found),
                {
                    "reuses 1.25 MiB": [one["reuser"]["per_1000"] for one in found.values()],
                    "reads 16 MiB at random": [one["scanner"]["per_1000"] for one in found.values()],
                },
            )
        ],
        [
            Claim(
                "The task that reuses its memory misses less with classes.",
                after["reuser"]["per_1000"] < (1 - SAME) * before["reuser"]["per_1000"],
            ),
            Claim(
                "The other one misses no more.",
                after["scanner"]["per_1000"] <= (1 + SAME) * before["scanner"]["per_1000"],
            ),
        ],
        "Misses are counts, and need no weights. How much the one loses without classes depends on how fast the "
        "other reads beside it. Who reads 16 MiB at random hits what happens to be there: a quarter in the whole "
        "cache, a ninth in seven ways. So ways of its own are a limit for it, too.",
    )
