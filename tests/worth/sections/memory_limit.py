# SPDX-License-Identifier: Apache-2.0
"""What a limit of memory bandwidth is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.worth.channel import gb_per_second
from tests.worth.section import SAME, Bars, Claim, Section, Table

LIMITS = {"none": "no limit", "50 %": "50 %", "30 %": "30 %", "10 %": "10 %", "MB/s": "in MB/s"}
KERNELS = "20"
"""vCPUs, as many as the kernel's example has threads."""
MORE = "40"


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.memory_limit.run`."""
    victims = found["victims"]
    vcpus = list(next(iter(victims.values()))["beside"])

    def times(victim: str, number: str, limit: str) -> float:
        of = victims[victim]
        return float(of["beside"][number][limit]["cycles"] / of["alone"]["cycles"])

    def all_times(number: str, limit: str) -> list[float]:
        return [times(victim, number, limit) for victim in victims]

    def left(number: str, limit: str) -> float:
        """What is left of the victims' loss at most, as a part of what it is without a limit."""
        pairs = zip(all_times(number, limit), all_times(number, "none"), strict=True)
        return max((limited - 1) / (unlimited - 1) for limited, unlimited in pairs)

    def moved(victim: str, number: str, limit: str) -> float:
        return float(victims[victim]["beside"][number][limit]["moved"] / found["channel"])

    kept = min(moved(victim, KERNELS, "50 %") / moved(victim, KERNELS, "none") for victim in victims)
    draw, channel = gb_per_second(found["draw"]), gb_per_second(found["channel"])
    return Section(
        "A limit of memory bandwidth",
        "The kernel's documentation of resctrl: a percentage limits each core by itself. On a processor whose cores "
        "draw 10 GB/s each and whose memory moves 100 GB/s, 20 threads with 50 % use all that memory moves; one "
        "thread and four with the same 10 % get different bandwidths.",
        f"A CPU that streams draws {draw:.1f} GB/s, and memory moves {channel:.0f} GB/s. A VM follows pointers "
        "through 64 MiB, one line after the other, or it streams, with up to ten lines underway: it needs memory for "
        f"each line. Its neighbour streams on {', '.join(vcpus[:-1])} or {vcpus[-1]} vCPUs. Each of both VMs has eight "
        "ways of its own. The neighbour's flavor has no limit, "
        "``hw:mem_bandwidth_percent=50``, ``=30`` or ``=10``, or in ``hw:mem_bandwidth_mbps`` half of what memory "
        "moves. That needs no guest: generated accesses go through the same model of the caches and "
        "through one channel to memory, where lines wait for each other. CPUs have clocks of their own, and one that "
        "waits for memory asks for nothing more meanwhile. Times have the weights of the whole report.",
        [
            Table(
                ("The VM", "Neighbour's vCPUs", *(f"Times as long as alone: {title}" for title in LIMITS.values())),
                [
                    (victim, number, *(f"{times(victim, number, limit):.2f}" for limit in LIMITS))
                    for victim in victims
                    for number in vcpus
                ],
            ),
            Table(
                ("The VM", "Neighbour's vCPUs", *(f"Neighbour's part of memory: {one}" for one in LIMITS.values())),
                [
                    (victim, number, *(f"{moved(victim, number, limit):.0%}" for limit in LIMITS))
                    for victim in victims
                    for number in vcpus
                ],
            ),
        ],
        [
            Bars(
                "memory-limit",
                "How long an access of the VM takes, by the limit of its neighbour",
                "times as long as alone",
                [f"{victim},\n{number} vCPUs" for victim in victims for number in vcpus],
                {
                    title: [times(victim, number, limit) for victim in victims for number in vcpus]
                    for limit, title in LIMITS.items()
                },
                axis="what the VM does, and the neighbour's vCPUs",
            )
        ],
        [
            Claim(
                f"Ways of its own do not keep {KERNELS} vCPUs without a limit from making the VM slower (here "
                f"{_shown(all_times(KERNELS, 'none'))} times).",
                min(all_times(KERNELS, "none")) > 1 + SAME,
            ),
            Claim(
                f"With 50 %, {KERNELS} vCPUs move no less than without a limit (here {kept:.0%} of it).",
                kept >= 1 - SAME,
            ),
            Claim(
                f"With 30 %, less than half of the damage of {KERNELS} vCPUs is left (here at most "
                f"{left(KERNELS, '30 %'):.0%}).",
                left(KERNELS, "30 %") < 0.5,
            ),
            Claim(
                f"The same 30 % undo nothing with {MORE} vCPUs (here {left(MORE, '30 %'):.0%} of the damage is left).",
                left(MORE, "30 %") >= 1 - SAME,
            ),
            Claim(
                f"A lower one does: with 10 %, less than half of the damage of {MORE} vCPUs is left (here at most "
                f"{left(MORE, '10 %'):.0%}).",
                left(MORE, "10 %") < 0.5,
            ),
            Claim(
                "A limit in MB/s undoes most of it, however many vCPUs there are: less than half is left (here at "
                f"most {max(left(number, 'MB/s') for number in vcpus):.0%}).",
                max(left(number, "MB/s") for number in vcpus) < 0.5,
            ),
        ],
        "A limit is a cap here on the lines that a CPU gets from memory in a second; it gets them a few at a time. "
        "Intel's hardware delays all requests of a core to the L3, those that hit, too, and its "
        "percentage is only near to a part of what the core would draw. A limit in MB/s is an equal cap for each vCPU "
        "here, from the beginning on; with ``mba_MBps`` the kernel counts and corrects it once a second. The "
        "channel serves lines in the order in which they come; a memory controller has several channels and an order "
        "of its own. No VM writes, and the cap is on what is read. The neighbour only streams, so it does as "
        "much less as it moves less: what that costs its owner depends on what it is for.",
    )


def _shown(numbers: list[float]) -> str:
    return " and ".join(f"{number:.2f}" for number in numbers)
