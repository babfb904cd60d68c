# SPDX-License-Identifier: Apache-2.0
"""What an operator should do, from what was found: each piece of advice has the figure that it follows from."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping
from typing import Any

from tests.worth.sections.mixes import BY_NEED, CAPPED, EVENLY, SHARED, throughput

TITLE = "What to do"
WIDTH = 112


def advice(results: Mapping[str, Any]) -> str:
    """The paragraphs, as reStructuredText.

    :param results: of all experiments.
    """
    mixes = [one["policies"] for one in results["mixes"]]

    def gain(policy: str) -> str:
        return f"{statistics.fmean(throughput(by[policy]) / throughput(by[SHARED]) - 1 for by in mixes):+.0%}"

    def missed(policy: str) -> str:
        some_stream = [by for by in mixes if "streaming" in by[policy]]
        return f"{statistics.fmean(by[policy]['sensitive']['miss_ratio'] for by in some_stream):.0%}"

    def ratio(case: str) -> str:
        return f"{results['four_cases']['cases'][case]['miss_ratio']:.2f}"

    def batch(case: str) -> str:
        return f"{results['capped_batch'][f'fits, {case}']['batch_miss_ratio']:.2f}"

    def longer(case: str) -> str:
        return f"{results['compression'][case]['slower']:.0%}"

    limits = results["memory_limit"]["victims"]["streams"]

    def times(vcpus: str, limit: str) -> str:
        return f"{limits['beside'][vcpus][limit]['cycles'] / limits['alone']['cycles']:.1f} times"

    pieces = {
        "Cap those who stream, first.": (
            "``hw:cache_ways=2`` with ``hw:cache_policy=shared`` on the flavor of batch VMs takes one class for all "
            "of them, and leaves all other VMs one large pool. It changes the throughput of the mixes by "
            f"{gain(CAPPED)} on average, and where some stream the sensitive VMs' misses go from {missed(SHARED)} to "
            f"{missed(CAPPED)} (`Sharing done well: mixes of VMs`_). What is capped loses nothing that it had: the "
            f"batch VM's miss ratio is {batch('free')} before, and {batch('one way')} after (`A batch VM in one "
            "way`_)."
        ),
        "Give ways of its own to a VM that must not depend on its neighbours.": (
            f"Its miss ratio beside a noisy one is {ratio('noisy')} without, and {ratio('protected')} with them (`A "
            "noisy neighbour, and what undoes it`_). A cap does as much against those who are capped, and nothing "
            "against others."
        ),
        "Give it as many as its working set needs, and one for QEMU and the host's kernel.": (
            f"A job of 320 KiB takes {longer('one way')} longer in a way of 256 KiB, and {longer('two ways')} longer "
            "in two (`A compression job`_)."
        ),
        "Don't divide the whole cache among all.": (
            "What a VM does not use of its ways, no other VM can use. Ways for each VM by itself change the throughput "
            f"of the mixes by {gain(EVENLY)} on average where they are divided evenly, and by {gain(BY_NEED)} where "
            "they are divided by need (`Sharing done well: mixes of VMs`_)."
        ),
        "Limit memory bandwidth where ways don't help, and count vCPUs.": (
            f"Beside 20 vCPUs that stream, a VM that streams takes {times('20', 'none')} as long as alone with ways of "
            f"its own, and {times('20', '30 %')} with ``hw:mem_bandwidth_percent=30`` on its neighbour. A percentage "
            f"is one of each vCPU: beside 40 with the same it is {times('40', '30 %')}, with 10 % it is "
            f"{times('40', '10 %')}, and {times('40', 'MB/s')} with a limit in MB/s, where the host has that (`A limit "
            "of memory bandwidth`_)."
        ),
        "Lock memory for what must not be late even once.": (
            "A handler that rests loses its lines to the VMs that are busy "
            "(`Latency of a handler that rests`_); memory in a locked region stays (`Memory locked in the cache`_, "
            ":doc:`locking`)."
        ),
        "Measure on your own hosts.": (
            "All of the above is a model. ``vmqos bench noisy-neighbor`` measures seconds (:doc:`noisy-neighbor`)."
        ),
    }
    told = [f"{what}\n{textwrap.indent(textwrap.fill(why, WIDTH - 4), ' ' * 4)}" for what, why in pieces.items()]
    return "\n".join([".. _what-to-do:\n", f"{TITLE}\n{'-' * len(TITLE)}\n", *told])
