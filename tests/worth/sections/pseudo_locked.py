# SPDX-License-Identifier: Apache-2.0
"""Memory that stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import SAME, Claim, Section
from tests.worth.sections.latencies import curves, table, times_better


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.pseudo_locked.run`."""
    median, worst = (times_better(found, "malloc", "pseudo-locked", figure) for figure in ("median", "worst"))
    return Section(
        "Memory locked in the cache",
        'R. Chatre, "Introducing Cache Pseudo-Locking to reduce memory access latency", 2018: beside a noisy program, '
        "the median latency of reading pseudo-locked memory was about 7 times better than of memory of the heap.",
        "On an emulated Broadwell with an L3 of 16 MiB and 20 ways: a process rests, and walks through 256 KiB, 40 "
        "times; of its heap, and of a region that ``vmqos lock create`` made (:doc:`locking`). Another process, "
        "without a cap, reads 48 MiB over and over on the same cache: 0 to 32 MiB between two events, as chance "
        "says.",
        [table("Memory", found)],
        [curves("pseudo-locked", "How many of the events took no longer, by kind of memory", found)],
        [
            Claim(f"The median is better (here {median:.1f} times, in 2018 about 7 times).", median > 1 + SAME),
            Claim(f"The worst event is better, too (here {worst:.1f} times).", worst > 1 + SAME),
        ],
        "The weights allow 4.5 times at the most, from every line in the L3 to every line in memory: 7 times can't "
        "be seen here. What locked memory takes longer now and then is not its own: the kernel's lines for reading "
        "the counters are counted as the handler's. Misses of the TLB, and the prefetchers that the kernel switches "
        "off while it locks.",
    )
