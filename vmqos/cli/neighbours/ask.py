# SPDX-License-Identifier: Apache-2.0
"""Questions on neighbours, which an agent of an earlier version does not know."""

from __future__ import annotations

import contextlib
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
