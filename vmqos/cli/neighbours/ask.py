# SPDX-License-Identifier: Apache-2.0
"""Questions on neighbours, which an agent of an earlier version does not know."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from statistics import median
from typing import Any

from vmqos.cli import exceptions
from vmqos.insight import Counts, LimitedIn, PercentSteps, Promise, Sample
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused

_NOT_FOUND = 404

_STEADY = 0.01
"""Seconds that the clock may lose against the monotonic one before it is taken to be set back: it is slewed, too."""


def verdicts(agent: AgentClient) -> contract.Neighbours:
    """What the agent judges.

    :raises vmqos.cli.exceptions.AgentTooOld: if it does not know the question.
    """
    with _too_old():
        return agent.neighbours()


def samples(agent: AgentClient, since: float | None = None) -> contract.NeighbourSamples:
    """What it judges by.

    :param since: only the samples after this time.
    :raises vmqos.cli.exceptions.AgentTooOld: if it does not know the question.
    """
    with _too_old():
        return agent.neighbour_samples(since)


class NewSamples:
    """The samples that the agent takes from now on: those that it has not told before.

    Their times do not say which these are. Where the clock is set back between two samples, the later one has the
    earlier time, and where it is set forward, none has a time of these seconds.

    :ivar earlier: what the agent has told at the beginning, by UUID.
    :raises vmqos.cli.exceptions.AgentTooOld: if the agent does not know the question.
    """

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._known: set[float] = set()
        self._last = self._offset = 0.0
        self._is_ahead = False
        self.earlier = self._unknown(None)

    def take(self) -> Mapping[str, list[contract.NeighbourSample]]:
        """Those that were taken since this was asked last, by UUID, in the order in which they were taken."""
        is_set_back = self._is_ahead or time.time() - time.monotonic() < self._offset - _STEADY
        # Each answer has the samples of all VMs of the host, so none is asked for twice without need.
        return self._unknown(None if is_set_back else self._last)

    def _unknown(self, since: float | None) -> Mapping[str, list[contract.NeighbourSample]]:
        now, monotonic = time.time(), time.monotonic()
        told = samples(self._agent, since)["samples"]
        new = {uuid: [one for one in of if one["time"] not in self._known] for uuid, of in told.items()}
        if moments := {one["time"] for of in new.values() for one in of}:
            self._known |= moments
            self._last, self._offset = max(moments), now - monotonic
            # A sample of the future was taken before the clock was set back: what follows it is not after it.
            self._is_ahead = self._last > time.time()
        return new


def traffic(told: contract.NeighbourSamples, uuid: str, samples: int) -> float | None:
    """What a VM has moved from and to memory last, in bytes a second; ``None`` where that is not known.

    :param samples: of how many samples this is the middle.
    """
    last = [one["bandwidth"] for one in told["samples"].get(uuid, [])[-samples:]]
    known = [bandwidth for bandwidth in last if bandwidth is not None]
    return median(known) if known else None


def plain(sample: contract.NeighbourSample) -> Sample:
    """A sample as :mod:`vmqos.insight` has it."""
    counts = sample["counts"]
    return Sample(
        sample["time"],
        {int(cache): held for cache, held in sample["occupancy"].items()},
        sample["bandwidth"],
        None
        if counts is None
        else Counts(counts["cycles"], counts["instructions"], counts["references"], counts["misses"]),
        sample.get("cpu_time"),
    )


def promise(vm: contract.SampledVm) -> Promise:
    """What a VM's flavor asks for, as far as this version knows what that is."""
    told: Mapping[str, Any] = vm.get("promise", {})
    return Promise(**{field.name: told[field.name] for field in fields(Promise) if field.name in told})


def limited_in(host: contract.SampledHost) -> LimitedIn:
    """What a host limits memory bandwidth in; not known, too, where an agent of another version says something else."""
    try:
        return LimitedIn(host.get("bandwidth_unit", LimitedIn.UNKNOWN))
    except ValueError:
        return LimitedIn.UNKNOWN


def percent_steps(host: contract.SampledHost) -> PercentSteps | None:
    """To which percentages a host can limit memory bandwidth; ``None`` where an earlier agent does not say it."""
    if "bandwidth_gran" not in host or "min_bandwidth" not in host:
        return None
    return PercentSteps(host["bandwidth_gran"], host["min_bandwidth"])


@contextlib.contextmanager
def _too_old() -> Iterator[None]:
    try:
        yield
    except AgentRefused as error:
        if error.values.get("status") != _NOT_FOUND:
            raise
        raise exceptions.AgentTooOld() from error
