# SPDX-License-Identifier: Apache-2.0
"""The tool's own report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.section import SAME, Bars, Claim, Section, Table

TITLES = {
    "alone": "alone",
    "noisy": "with a noisy neighbour",
    "protected": "with ways of its own",
    "alone_again": "alone again",
}


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.bench.run`."""
    phases, ratios = found["phases"], found["ratios"]
    alone = phases["alone"]["median"]
    return Section(
        "The tool's own report",
        "The same experiment as the tutorials of the field have it, for processes: ``vmqos bench noisy-neighbor`` "
        "(:doc:`noisy-neighbor`).",
        f"``vmqos bench noisy-neighbor --ways {found['ways']}`` on the same cache. It needs no VM and no agent, and "
        "it measures seconds. So the caches take time here: a CPU stands still for 1 us for a line from the L3, and "
        f"for 5 us for one from memory. Its verdict: *{found['verdict']}* Its first note: *{found['remarks'][0]}*: "
        "it says that of every virtual machine, and can't know of the model. On a simulated host it says before and "
        "after: *The figures mean nothing: resctrl is simulated here, and its masks partition no cache.*",
        [
            Table(
                ("Phase", "Median of an access", "Middle half", "Ratio"),
                [
                    (
                        title,
                        f"{phases[name]['median']:.0f} ns",
                        f"{phases[name]['low']:.0f} to {phases[name]['high']:.0f} ns",
                        f"{phases[name]['median'] / alone:.2f}",
                    )
                    for name, title in TITLES.items()
                ],
            )
        ],
        [
            Bars(
                "bench",
                "What vmqos bench noisy-neighbor measured, by phase",
                "ns per access (median)",
                list(TITLES.values()),
                {"the victim": [phases[name]["median"] for name in TITLES]},
            )
        ],
        [
            Claim("The neighbour slows the victim.", ratios["noisy"] > 1 + SAME),
            Claim(
                "Ways of its own undo most of it: less than half of the damage is left.",
                ratios["protected"] - 1 < (ratios["noisy"] - 1) / 2,
            ),
        ],
        "These are seconds of an emulated machine, the only ones of this page: another run has others, and a busy "
        "machine widens the middle half.",
    )
