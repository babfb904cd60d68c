# SPDX-License-Identifier: Apache-2.0
"""The experiment of ``vmqos size``: a VM is let have one more way after the other, and is watched with each.

It begins with what the VM was promised and goes up only, for the reasons that :mod:`vmqos.insight.size` has. Whatever
ends this process, the ways are free again some seconds later (:mod:`vmqos.cli.lease`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from vmqos.cli import exceptions
from vmqos.cli.lease import ANSWER_TIME, PATIENCE, PAUSE, Lease, lease
from vmqos.cli.neighbours import ask
from vmqos.cli.show import units
from vmqos.cli.show.safe_text import display_name
from vmqos.cli.size.tell import tell
from vmqos.insight import size as law
from vmqos.insight.model import Sample
from vmqos.insight.size import Point, Size
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused

LONGEST = 900.0
"""Seconds after which the agent ends a trial of ways."""
SPARE = 30.0
"""Of these, the seconds that are left for what is not watching."""
FEWEST = law.FEWEST + 2
"""Samples that a step takes at least: the first tells of the time before it, too."""
LATE = 3
"""Samples that may be missing before the agent is taken not to count any more."""
SPEC = "hw:cache_ways={ways}"

Report = Callable[[int, float], None]
"""Is told with how many ways the VM is watched, and which part of the time that this takes at most has passed."""


@dataclass(frozen=True, slots=True)
class Room:
    """What can be tried.

    :ivar base: how many ways the VM has for itself, on each L3 that it runs on.
    :ivar most: how many it is tried with at most.
    :ivar free: how many more it could have.
    """

    vm: contract.Vm
    base: int
    most: int
    free: int


@dataclass(frozen=True, slots=True)
class Sized:
    """What came of it.

    :ivar points: what the VM did with each number of ways, the fewest first.
    :ivar ended: why no further ways were tried; empty where all were.
    :ivar seconds: how long it took.
    """

    room: Room
    found: Size
    points: tuple[Point, ...]
    ended: str
    seconds: float

    @property
    def tried(self) -> int:
        """The most ways that the VM was tried with."""
        return self.points[-1].ways

    @property
    def is_least(self) -> bool:
        """Whether the VM may need more: the last way that it was tried with still spared it much, and could again."""
        is_at_end = self.found.knee == self.tried > self.room.base
        return is_at_end and not (self.found.is_counted and self.found.curve[self.tried] <= law.ENOUGH)


def find(agent: AgentClient, vm: contract.Vm, most: int | None) -> Room:
    """From how many to how many ways a VM can be tried.

    :param most: how many at most, as the operator said; ``None``: all that are free.
    :raises vmqos.cli.exceptions.NothingToSize: if it has no ways of its own, or its promise is not kept.
    :raises vmqos.cli.exceptions.NoFreeWays: if there are no others.
    """
    name = display_name(vm)
    if vm["policy"] != "exclusive" or not vm["ways_requested"]:
        raise exceptions.NothingToSize(vm=name, problem="its flavor promises it no ways of its own")
    if vm["state"] != "kept" or not vm["masks"]:
        raise exceptions.NothingToSize(vm=name, problem=f"its promise is {vm['state']} now: {vm['reason']}")
    counts = _ways(vm)
    base = max(counts.values())
    if most is not None and most <= base:
        raise exceptions.NotTogether(problem=f"--most {most} is not above the {base} ways that it has", command="size")
    free = {str(cache["id"]): cache["free_ways"] for cache in agent.caches() if str(cache["id"]) in counts}
    least = min(free, key=lambda cache: free[cache], default="")
    if not free.get(least):
        raise exceptions.NoFreeWays(cache=least or "-", ways=base, vm=name)
    reach = base + free[least]
    return Room(vm, base, reach if most is None else min(most, reach), free[least])


def check(room: Room, interval: float) -> None:
    """Check that there are enough samples of each step.

    :param interval: seconds between two samples.
    :raises vmqos.cli.exceptions.NothingSampled: if there are none.
    :raises vmqos.cli.exceptions.TooSeldom: if a trial is too short for them.
    """
    if not interval:
        raise exceptions.NothingSampled()
    if FEWEST * interval * (room.most - room.base + 1) > LONGEST - SPARE:
        raise exceptions.TooSeldom(interval=interval, longest=LONGEST)


def run(agent: AgentClient, room: Room, interval: float, report: Report) -> Sized:
    """Let the VM have one more way after the other, and say how many it needs.

    However this ends, the ways are given back first.

    :param interval: seconds between two samples.
    :raises vmqos.local_api.exceptions.AgentRefused: if nothing can be tried.
    :raises vmqos.cli.exceptions.TrialLost: if the trial ends before there is anything to compare.
    :raises vmqos.cli.exceptions.NotCounted: if what the VM does is not known.
    :raises vmqos.cli.exceptions.NotPutBack: if the VM does not have again what it had.
    """
    began, points, ended = time.monotonic(), list[Point](), ""
    with lease(agent, room.vm, _ways, _told) as held:
        for ways in range(room.base, room.most + 1):
            try:
                left = held.begin(SPEC.format(ways=ways))["seconds_left"]
                budget = max(FEWEST * interval, (left - SPARE) / (room.most - ways + 1))
                samples = _watched(held, room, interval, budget, functools.partial(report, ways))
            except (AgentRefused, exceptions.TrialLost) as error:
                if len(points) < 2:
                    raise
                # What was counted so far is right, and with fewer ways than were to be tried.
                ended = str(error.values.get("problem") or error.values.get("text") or error)
                break
            points.append(law.point(ways, samples))
            if ways < room.most and points[-1].missed <= law.SURE:
                ended = f"with {ways} ways it misses next to nothing"
                break
    try:
        found = law.size(points)
    except ValueError as error:
        raise exceptions.NotCounted(vm=display_name(room.vm), problem=error) from error
    sized = Sized(room, found, tuple(points), ended, time.monotonic() - began)
    tell(agent, room.vm, found, at_least=sized.is_least)
    return sized


def _watched(held: Lease, room: Room, interval: float, budget: float, report: Callable[[float], None]) -> list[Sample]:
    """The samples of a VM since now, once they are enough, or have taken long enough.

    :param budget: seconds that they may take.
    :param report: is told the part of this time that has passed.
    :raises vmqos.cli.exceptions.NotCounted: if there are none.
    """
    client, uuid, began = replace(held.client, timeout=ANSWER_TIME), room.vm["uuid"], time.time()
    while True:
        held.renew()
        # A sample tells of the time since the one before, so the first does not count.
        found = [one for one in ask.samples(client, began)["samples"].get(uuid, []) if one["time"] > began][1:]
        samples, passed = list(map(ask.plain, found)), time.time() - began
        report(min(1.0, passed / budget))
        if law.is_enough(samples) or (samples and passed >= budget):
            return samples
        if passed >= budget + max(PATIENCE, LATE * interval):
            raise exceptions.NotCounted(vm=display_name(room.vm), problem="the agent does not read its counters")
        time.sleep(PAUSE)


def _ways(vm: contract.Vm) -> dict[str, int]:
    """How many ways the VM has, by cache."""
    return {cache: units.parse_mask(mask).bit_count() for cache, mask in vm["masks"].items()}


def _told(vm: contract.Vm) -> str:
    return f"its ways are {units.ways_by_cache(vm['masks'])}"
