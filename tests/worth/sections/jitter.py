# SPDX-License-Identifier: Apache-2.0
"""A handler that rests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import SAME, Claim, Section
from tests.worth.sections.latencies import curves, table, times_better


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.jitter.run`."""
    mean, median = (times_better(found, "noisy", "capped", figure) for figure in ("mean", "median"))
    return Section(
        "Latency of a handler that rests",
        'V. Shivappa, "An Introduction to Cache Quality of Service in Linux", LinuxCon North America 2015: beside a '
        "noisy neighbour the average latency of a task that waits for events was 2.8 times better with classes.",
        "A process on the host rests, and then walks through 128 KiB once, 80 times. A VM reads 16 MiB over and over; "
        "while the process rests, it reads 0 to 8 MiB of them, as chance says (twice the cache at most). Its flavor "
        "then caps it: ``hw:cache_ways=2``, ``hw:cache_policy=shared``.",
        [table("Neighbour", found)],
        [curves("jitter", "How many of the events took no longer, beside a neighbour", found)],
        [
            Claim(f"The mean is better with the cap (here {mean:.1f} times, in 2015 2.8 times).", mean > 1 + SAME),
            Claim(f"So is the median (here {median:.1f} times).", median > 1 + SAME),
        ],
        "What a CPU does to wake up, interrupts, and power states: an event's time is its lines' alone. How often "
        "events come beside how fast the neighbour reads is our choice, and decides how many find nothing left; the "
        "weights allow 4.5 times at the most, from every line in the L3 to every line in memory.",
    )
