# SPDX-License-Identifier: Apache-2.0
"""The batch VM of 2016."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import SAME, Bars, Claim, Section, Table

IN_2016 = {"free": 1842, "one way": 2592}
SIZES = {"fits": "1 MiB copied to 1 MiB", "does not fit": "4 MiB copied to 4 MiB"}


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.capped_batch.run`."""

    def figure(size: str, case: str, name: str) -> float:
        return float(found[f"{size}, {case}"][name])

    gains = {
        size: figure(size, "one way", "mb_per_second") / figure(size, "free", "mb_per_second") - 1 for size in SIZES
    }
    return Section(
        "A batch VM in one way",
        "A measurement of 2016: with the VM beside it limited to one way, the STREAM benchmark on a host went from "
        "1842 to 2592 MB/s, which is 41 % more.",
        "A VM copies memory over and over: once so little that it fits into the cache, once twice the cache, which "
        "is nearer to what STREAM's own rules ask for (arrays of four times the cache). The batch VM reads 16 MiB; its "
        "flavor then has ``hw:cache_ways=1`` with ``hw:cache_policy=shared``.",
        [
            Table(
                ("Benchmark", "Batch VM", "Bandwidth, weighed", "In 2016", "Miss ratio", "Batch VM's miss ratio"),
                [
                    (
                        size,
                        case,
                        f"{figure(name, case, 'mb_per_second'):.0f} MB/s",
                        f"{theirs} MB/s",
                        f"{figure(name, case, 'miss_ratio'):.3f}",
                        f"{figure(name, case, 'batch_miss_ratio'):.3f}",
                    )
                    for name, size in SIZES.items()
                    for case, theirs in IN_2016.items()
                ],
            )
        ],
        [
            Bars(
                "capped-batch",
                "The benchmark's bandwidth, with the batch VM free and in one way",
                "MB/s",
                [f"{size}\n(here; weighed)" for size in SIZES.values()] + ["2016"],
                {
                    f"batch VM {case}": [*(figure(name, case, "mb_per_second") for name in SIZES), theirs]
                    for case, theirs in IN_2016.items()
                },
            )
        ],
        [
            Claim(
                f"A benchmark that fits into the cache gains (here {gains['fits']:+.0%}, in 2016 +41 %).",
                gains["fits"] > SAME,
            ),
            Claim(
                f"So does one that does not fit (here {gains['does not fit']:+.0%}).",
                gains["does not fit"] > SAME,
            ),
            Claim(
                "The batch VM misses as often as before.",
                figure("fits", "one way", "batch_miss_ratio") <= figure("fits", "free", "batch_miss_ratio") + SAME,
            ),
        ],
        "Memory's bandwidth, which the next section has. We don't know how large the arrays of 2016 were. A benchmark "
        "that does not fit has nothing to gain from ways in an LRU cache; what it gained in 2016, if it was one, was "
        "not won in the cache alone. The one that fits goes from a miss ratio of "
        f"{figure('fits', 'free', 'miss_ratio'):.2f} to {figure('fits', 'one way', 'miss_ratio'):.2f}, and no "
        "prefetcher helps it before: its gain is an upper bound.",
    )
