# SPDX-License-Identifier: Apache-2.0
"""The core of it: a VM alone, beside a noisy neighbour, with ways of its own, and beside a capped neighbour.

The agent is the only one who touches resctrl; what changes from case to case are flavors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kernel.cachemodel import switch
from tests.worth import window
from tests.worth.loads import Load
from tests.worth.node import NOTHING, RESCTRL, Node, Worker, node
from tests.worth.window import Seen

KIB, MIB = 1 << 10, 1 << 20
CACHE = 4 * MIB
WAYS = 16

WORKING_SET = 1536 * KIB
"""Six of the cache's sixteen ways."""
LINES = WORKING_SET // window.LINE
VICTIM = Load("chase", WORKING_SET, every=1 << 13, work=200)
"""Slower than its neighbour by what it does with each line, as programs are that do more than to read: many times, for
a neighbour that brings in less than the cache's other ten ways while the victim goes round once takes nothing. A round
takes longer than the victim's turn on the CPU."""
NOISE = Load("stream", 16 * CACHE, every=1 << 19)
"""Larger than what it reads while the victim goes round once. What it has in ways that are no longer its own is hit
where it lies; if it came back to that sooner than the victim to its own, the victim's lines would be the older ones,
and go."""
L2 = 64 * KIB
"""Bytes of a CPU's own cache: small, for the L3 is small, too."""

CPU = "1"
"""Of both VMs: the kernel gives each half of it. On two CPUs, how noisy the neighbour is would be a matter of how much
of either the machine below emulates at the moment."""
HOUSEKEEPING = frozenset({0, 2, 3})
"""The CPUs of what is no VM. An agent that starts would else have the VMs' for a second."""

PROTECTED = {"hw:cache_ways": "8"}
CAPPED = {"hw:cache_ways": "2", "hw:cache_policy": "shared"}
WARM, MEASURED = 6 * LINES, 32 * LINES
"""Rounds of the victim."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The two VMs."""

    node: Node
    victim: Worker
    noise: Worker

    def measure(self) -> dict[str, Seen]:
        """What both do, and the host."""
        both, host = (self.victim, self.noise), {"host": switch.rmid_of(RESCTRL)}
        return window.measure(self.node, both, (self.victim,), WARM, MEASURED, host)


@contextlib.contextmanager
def pair() -> Iterator[Pair]:
    """The two VMs on a compute node of their own; the caches are modelled."""
    with _on_cpus(HOUSEKEEPING), node() as made, pair_on(made) as both:
        yield both


@contextlib.contextmanager
def _on_cpus(cpus: frozenset[int]) -> Iterator[None]:
    """This process and what it starts run on these CPUs; libvirt sees to those of VMs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def pair_on(node: Node) -> Iterator[Pair]:
    """The two VMs on a compute node that is there; the caches are modelled."""
    victim, noise = node.start_all({"victim": VICTIM, "noise": NOISE}, {"victim": CPU, "noise": CPU})
    with modelled():
        yield Pair(node, victim, noise)


def modelled(sample: int = 2) -> contextlib.AbstractContextManager[None]:
    """The caches are modelled for a while: one of ``2 ** sample`` sets of them. VMs start faster without."""
    return switch.on(sample=sample, l2size=L2)


def measure(found: Pair) -> dict[str, dict[str, Seen]]:
    """The four cases: what each VM did, by case and VM; at the end neither VM has a promise."""
    victim, noise, promise = found.victim, found.noise, found.node.promise
    cases = {}
    noise.pause()
    cases["alone"] = found.measure()
    noise.resume()
    cases["noisy"] = found.measure()
    promise(victim, PROTECTED)
    cases["protected"] = found.measure()
    promise(victim, NOTHING)
    promise(noise, CAPPED)
    cases["capped"] = found.measure()
    promise(noise, NOTHING)
    return cases


def measure_without_agent(found: Pair) -> dict[str, Seen]:
    """The same with the VM protected and the agent stopped, which it is at the end, too."""
    found.node.promise(found.victim, PROTECTED)
    found.node.agent.stop()
    return found.measure()


def measure_taken_back(found: Pair) -> dict[str, Seen]:
    """Then: the agent runs again, and the VM's flavor has lost its ways."""
    found.node.agent.start()
    found.node.promise(found.victim, NOTHING)
    return found.measure()
