# SPDX-License-Identifier: Apache-2.0
"""``vmqos size`` on a VM in the guest, beside the truth: what the model says it would miss with each number of ways.

It is the command's own trial, with the agent and the kernel as they are. Two things are added. The model's stack
distances of the VM are read whenever the trial comes to the next number of ways. And the agent's samples get the counts
of the L3 that perf has on a processor of Intel's, and on the emulated one of AMD's has not
(:mod:`vmqos.telemetry.hardware_events`): cycles, instructions, references and misses, from the model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import Counts
from tests.worth.size.programs.cost import ANY_CPU, Done, cycles, done
from vmqos.cli.neighbours import ask
from vmqos.insight import size as law
from vmqos.insight.model import Sample
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient


@dataclass(frozen=True, slots=True)
class Step:
    """What happened until the trial came to a number of ways, or to its end.

    :ivar ways: that it comes to; 0: none, it ends.
    """

    ways: int
    done: Done


@dataclass
class Watch:
    """What is noted of one VM.

    :ivar rmid: by which the hardware counts it.
    :ivar cpu: that it has for itself.
    :ivar steps: the trial's.
    :ivar samples: what the agent told of the VM, by ways.
    """

    rmid: int
    uuid: str
    cpu: int
    steps: list[Step] = field(default_factory=list)
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    _last: tuple[float, Counts] | None = None
    _seen: float = 0.0

    def step(self, ways: int) -> None:
        """Note that the trial comes to so many ways."""
        if self.steps and self.steps[-1].ways == ways:
            return
        if self._last is None:
            self._last = time.monotonic(), self.read()
        self.steps.append(Step(ways, self.done()))

    def done(self) -> Done:
        """What was counted so far."""
        return done(self.cpu, self.rmid)

    def read(self) -> Counts:
        """What the model of the caches counted so far."""
        return switch.counts(ANY_CPU, self.rmid)

    def complete(self, told: contract.NeighbourSamples) -> None:
        """Give the VM's new samples what the model counted since those before."""
        new = [one for one in told["samples"].get(self.uuid, []) if one["time"] > self._seen]
        if not new:
            return
        now, counts = time.monotonic(), self.read()
        self._seen = new[-1]["time"]
        if self._last is not None:
            since, before = self._last
            rates = _rates(counts - before, now - since)
            for one in new:
                one["counts"] = rates
        self._last = now, counts
        if self.steps and self.steps[-1].ways:
            self.samples.setdefault(self.steps[-1].ways, []).extend(map(ask.plain, new))


@dataclass(frozen=True)
class Watching(AgentClient):
    """A client that notes what is asked for, and completes what is answered.

    :ivar watch: where it notes that.
    """

    watch: Watch = field(kw_only=True)

    def begin_trial(
        self, uuid: str, key: str, tried: str, *, may_fill_fewer: bool = False, confine: bool = False
    ) -> contract.RunningTrial:
        """See :class:`AgentClient`."""
        self.watch.step(int(tried.removeprefix("hw:cache_ways=")))
        return AgentClient.begin_trial(self, uuid, key, tried, may_fill_fewer=may_fill_fewer, confine=confine)

    def end_trial(self, uuid: str, key: str) -> contract.RunningTrial:
        """See :class:`AgentClient`."""
        self.watch.step(0)
        return AgentClient.end_trial(self, uuid, key)

    def neighbour_samples(self, since: float | None = None) -> contract.NeighbourSamples:
        """See :class:`AgentClient`."""
        told = AgentClient.neighbour_samples(self, since)
        self.watch.complete(told)
        return told


def truth(steps: Sequence[Step]) -> dict[int, float]:
    """By ways, which share of its references the VM would have missed that it made while it had them."""
    found = {}
    for step, after in pairwise(steps):
        curve = (after.done - step.done).curve
        found[step.ways] = curve.misses(step.ways) / curve.accesses
    return found


def uncounted(samples: Sequence[Sample]) -> Sequence[Sample]:
    """What the law takes of the same samples where there is no PMU."""
    plain = [replace(one, counts=None) for one in samples]
    enough = (number for number in range(1, len(plain)) if law.is_enough(plain[:number]))
    return plain[: next(enough, len(plain))]


def _rates(counts: Counts, seconds: float) -> contract.NeighbourCounts:
    lines = counts.data + counts.fetch
    return {
        "cycles": cycles(counts) / seconds,
        "instructions": counts.instructions / seconds,
        "references": (lines.l3 + lines.memory) / seconds,
        "misses": lines.memory / seconds,
    }
