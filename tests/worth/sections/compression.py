# SPDX-License-Identifier: Apache-2.0
"""Intel's tutorial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import SAME, Bars, Claim, Section, Table

TUTORIAL = {"alone": 0.0, "one way": 0.28, "two ways": 0.0, "noisy, same class": 0.20, "noisy, low priority": 0.08}


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.compression.run`."""
    slower = {case: one["slower"] for case, one in found.items()}
    cases = list(TUTORIAL)
    return Section(
        "A compression job",
        "Intel's tutorial on Cache Allocation Technology: a compression job takes 28 % longer in one way and no "
        "longer in two; 20 % longer with noisy neighbours in its class, and 8 % with these in a class of low "
        "priority.",
        "A VM compresses text the way of LZ4: 128 KiB of text, a table of 128 KiB, 64 KiB of output; a way has 256 "
        "KiB. Its flavor has no ways (*alone*), ``hw:cache_ways=1``, and ``hw:cache_ways=2``. Then, without ways "
        "again, two neighbours read 16 MiB and copy 4 MiB: without a promise (*same class*), and with "
        "``hw:cache_ways=1``, ``hw:cache_policy=shared`` (*low priority*).",
        [
            Table(
                (
                    "Case",
                    "Longer than alone, weighed",
                    "The tutorial's",
                    "Miss ratio",
                    "Lines from memory in 1000 bytes",
                ),
                [
                    (
                        case,
                        f"{found[case]['slower']:+.1%}",
                        f"{theirs:+.0%}",
                        f"{found[case]['miss_ratio']:.3f}",
                        f"{1000 * found[case]['misses_per_byte']:.1f} data, "
                        f"{1000 * found[case]['code_misses_per_byte']:.1f} code",
                    )
                    for case, theirs in TUTORIAL.items()
                ],
            )
        ],
        [
            Bars(
                "compression",
                "How much longer the compression job takes than alone",
                "longer than alone, per cent",
                cases[1:],
                {
                    "here, weighed": [100 * slower[case] for case in cases[1:]],
                    "the tutorial": [100 * TUTORIAL[case] for case in cases[1:]],
                },
            )
        ],
        [
            Claim(f"In one way it takes longer (here {slower['one way']:+.1%}).", slower["one way"] > SAME),
            Claim(f"In two ways it takes no longer (here {slower['two ways']:+.1%}).", slower["two ways"] <= SAME),
            Claim("Neighbours in the same class make it take longer.", slower["noisy, same class"] > SAME),
            Claim(
                "A class of low priority for them undoes most of it: less than half is left.",
                slower["noisy, low priority"] < slower["noisy, same class"] / 2,
            ),
            Claim("The single way costs more than the neighbours do.", slower["one way"] > slower["noisy, same class"]),
        ],
        "What a line from memory costs a program that does other things meanwhile: here nothing overlaps, so each "
        "miss counts in full. How much smaller than the job a single way is, and how noisy the neighbours are, "
        "decides between the two damages; the tutorial's sizes are not ours. A way is also QEMU's and the host "
        "kernel's, as far as they work for the VM: the job's own code is some hundred bytes, so the lines of code "
        "that miss are theirs. In two ways of 512 KiB they and the job's 320 KiB are in each other's way; on a real "
        "machine the job does far more between two of their visits, and they would count for less.",
    )
