# SPDX-License-Identifier: Apache-2.0
"""The batch VM of 2016, with memory's bandwidth in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.worth.section import SAME, Bars, Claim, Section, Table
from tests.worth.sections.capped_batch import SIZES

CASES = ("free", "one way", "one way, limited")


def section(found: Mapping[str, Any]) -> Section:
    """See :func:`tests.worth.experiments.batch_channel.run`."""
    rows = [
        (size, vcpus, channel) for size, by_vcpus in found.items() for vcpus, by in by_vcpus.items() for channel in by
    ]
    few, many = found["fits"]
    scarce = list(found["fits"][few])[-1]

    def figure(row: tuple[str, str, str], case: str, name: str) -> float:
        size, vcpus, channel = row
        return float(found[size][vcpus][channel][case][name])

    def gain(row: tuple[str, str, str], case: str = "one way") -> float:
        return figure(row, case, "mb_per_second") / figure(row, "free", "mb_per_second") - 1

    with_channel = {(size, vcpus): (size, vcpus, scarce) for size in found for vcpus in (few, many)}
    large = [with_channel["does not fit", vcpus] for vcpus in (few, many)]
    moved = [figure(row, "one way", "batch_moved") / figure(row, "free", "batch_moved") for row in large]
    return Section(
        "A batch VM in one way, with memory's bandwidth in it",
        "The measurement of 2016 again: with the VM beside it limited to one way, the STREAM benchmark on a host got "
        "41 % more bandwidth.",
        "The two VMs of the section before, without a guest: generated accesses go through the same model of the "
        "caches, and through a channel to memory, in which lines wait for each other. It moves any number of bytes, "
        f"or {scarce}; the benchmark that does not fit and one vCPU of the batch VM would move 17 GB/s together. "
        "CPUs have clocks of their own, and up to ten lines underway: one that waits asks for nothing more. The batch "
        f"VM reads 16 MiB on {_vcpus(few)}, or on each of {many}. It has no promise, one way, or one way with "
        "``hw:mem_bandwidth_percent=10``.",
        [
            Table(
                ("Benchmark", "vCPUs", "Memory moves", *(f"Batch VM {case}" for case in CASES), "Its miss ratio"),
                [
                    (
                        SIZES[row[0]],
                        row[1],
                        row[2],
                        f"{figure(row, 'free', 'mb_per_second'):.0f} MB/s",
                        *(
                            f"{figure(row, case, 'mb_per_second'):.0f} MB/s ({gain(row, case):+.0%})"
                            for case in CASES[1:]
                        ),
                        ", ".join(f"{figure(row, case, 'miss_ratio'):.2f}" for case in CASES),
                    )
                    for row in rows
                ],
            )
        ],
        [
            Bars(
                "batch-channel",
                f"The benchmark's bandwidth where memory moves {scarce}, by what the batch VM has",
                "MB/s",
                [f"{SIZES[size]},\n{_vcpus(vcpus)}" for size, vcpus in with_channel],
                {
                    f"batch VM {case}": [figure(row, case, "mb_per_second") for row in with_channel.values()]
                    for case in CASES
                },
            )
        ],
        [
            *(
                Claim(
                    f"Beside a batch VM of {_vcpus(vcpus)}, a benchmark that fits into the cache gains from the way "
                    f"(here {gain(with_channel['fits', vcpus]):+.0%}, in 2016 +41 %).",
                    gain(with_channel["fits", vcpus]) > SAME,
                )
                for vcpus in (few, many)
            ),
            Claim(
                f"With memory's bandwidth in it, one that does not fit gains, too (here {_shown(map(gain, large))}).",
                min(map(gain, large)) > SAME,
            ),
            Claim(
                "The way takes nothing off the channel: beside that one, the batch VM moves no less than before (here "
                f"{min(moved):.0%} of it).",
                min(moved) >= 1 - SAME,
            ),
            Claim(
                "A limit of memory bandwidth beside the way does: then the benchmark that does not fit gains (here "
                f"{_shown(gain(row, 'one way, limited') for row in large)}).",
                min(gain(row, "one way, limited") for row in large) > SAME,
            ),
        ],
        "How much the limit brings depends on how scarce memory is, which we don't know of 2016, nor how large its "
        "arrays were. Between the two sizes all is or nothing here: a loop over more than its ways hits nothing in an "
        "LRU cache, where real ones keep a part, from which a larger part of the cache gains. A benchmark that fits "
        "and hits is so much faster than one vCPU that waits for memory that it always comes back to its lines before "
        "that has filled the cache; in the section before both have the same pace, and so it loses them. Limits "
        "of bandwidth are modelled as the next section says.",
    )


def _vcpus(number: str) -> str:
    return f"{number} vCPU{'' if number == '1' else 's'}"


def _shown(gains: Iterable[float]) -> str:
    return " and ".join(f"{one:+.0%}" for one in gains)
