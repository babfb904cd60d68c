# SPDX-License-Identifier: Apache-2.0
"""The experiment of ``vmqos size --flavor NAME``: VMs of a flavor are sized one after the other.

A trial takes free ways, and one is possible at a time; so each VM has given its ways back before the next one gets any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmqos.cli import exceptions
from vmqos.cli.neighbours import ask
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.size import stepping
from vmqos.cli.size.stepping import LONGEST, Room, Sized
from vmqos.cli.vm.choice import choose
from vmqos.insight.flavor_size import FlavorSize, cost, flavor_size
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import AgentRefused, LocalApiError

VMS = 4
"""VMs that are tried, unless the operator says how many: that takes an hour at most."""
RECENT = 6
"""Samples that say what a VM moves now."""
INTERRUPTED = "Ctrl-C"

Tell = Callable[[Room, int, float, bool], None]
"""Is told which VM comes next, how many come with it, and how long these take: at most, or as the others took."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which VMs of a flavor are to be tried.

    :ivar vms: all that run here.
    :ivar rooms: those that are to be tried, in this order.
    :ivar refused: why others can't be, by UUID.
    :ivar free: how many ways no VM has, by L3 cache.
    """

    flavor: str
    vms: tuple[contract.Vm, ...]
    rooms: tuple[Room, ...]
    refused: Mapping[str, str]
    free: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class FlavorSized:
    """What came of it.

    :ivar sized: the VMs that were sized, in the order in which they were tried.
    :ivar refused: why others could not be, by UUID.
    :ivar ended: why no further VM was tried; empty where all were.
    :ivar seconds: how long it took.
    """

    chosen: Chosen
    sized: tuple[Sized, ...]
    refused: Mapping[str, str]
    ended: str
    seconds: float

    @property
    def found(self) -> FlavorSize | None:
        """How many ways the flavor needs; ``None`` where no VM was sized."""
        return flavor_size([one.found for one in self.sized]) if self.sized else None

    @property
    def other(self) -> int:
        """How many ways the other part has, where code and data have ways apart: the most that a VM of them has."""
        return max((one.room.other for one in self.sized), default=0)

    @property
    def cost(self) -> dict[int, int]:
        """How many more ways all VMs of the flavor here are promised then, by L3 cache; fewer than 0 are freed."""
        return cost(self.found.knee + self.other, map(_promised, self.chosen.vms)) if self.found is not None else {}


def running(vms: Sequence[contract.Vm], flavor: str) -> list[contract.Vm]:
    """The VMs of a flavor.

    :raises vmqos.cli.exceptions.NoVmOfFlavor: if none runs here; it names the flavors that do.
    """
    found = choose(vms, (), (flavor,))
    if not found:
        known = ", ".join(sorted({neutralise(vm["flavor"]) for vm in vms if vm["flavor"]}))
        raise exceptions.NoVmOfFlavor(wanted=neutralise(flavor), known=known or "none")
    return found


def select(
    agent: AgentClient, vms: Sequence[contract.Vm], room_of: Callable[[contract.Vm], Room], count: int
) -> Chosen:
    """Which VMs of a flavor are to be tried, and why others can't be.

    :param vms: all of the flavor; at least one.
    :param room_of: what can be tried on a VM.
    :param count: how many are to be tried at most.
    """
    rooms, refused, samples = list[Room](), dict[str, str](), ask.samples(agent)
    for vm in vms:
        try:
            rooms.append(room_of(vm))
        except exceptions.CommandError as error:
            refused[vm["uuid"]] = stepping.why(error)
    moved = {vm["uuid"]: ask.traffic(samples, vm["uuid"], RECENT) or 0.0 for vm in vms}
    rooms.sort(key=lambda room: (-moved[room.vm["uuid"]], room.vm["uuid"]))
    return Chosen(vms[0]["flavor"], tuple(vms), tuple(spread(rooms, count)), refused, stepping.free_ways(agent))


def spread(rooms: Sequence[Room], count: int) -> list[Room]:
    """So many of them, evenly spread: the first one, and the last one if there is more than one.

    :param count: from 1 up.
    """
    if len(rooms) <= count:
        return list(rooms)
    return [rooms[round(at * (len(rooms) - 1) / max(1, count - 1))] for at in range(count)]


def run(chosen: Chosen, size_one: Callable[[Room], Sized], tell: Tell) -> FlavorSized:
    """Size one VM after the other.

    A VM that can't be sized does not end it. Ctrl-C does, and so does an agent that answers no more, or a VM that does
    not have again what it had; what was found until then is kept.
    """
    began, sized, refused, ended = time.monotonic(), list[Sized](), dict(chosen.refused), ""
    try:
        for number, room in enumerate(chosen.rooms):
            _tell_next(tell, room, len(chosen.rooms) - number, sized)
            try:
                sized.append(size_one(room))
            except exceptions.NotPutBack:
                raise
            except (exceptions.CommandError, AgentRefused) as error:
                refused[room.vm["uuid"]] = stepping.why(error)
    except KeyboardInterrupt:
        ended = INTERRUPTED
    except (exceptions.NotPutBack, LocalApiError) as error:
        ended = str(error)
    return FlavorSized(chosen, tuple(sized), refused, ended, time.monotonic() - began)


def _tell_next(tell: Tell, room: Room, left: int, sized: Iterable[Sized]) -> None:
    took = [one.seconds for one in sized]
    tell(room, left, left * (sum(took) / len(took) if took else LONGEST), not took)


def _promised(vm: contract.Vm) -> dict[int, int]:
    """How many ways of its own a VM is promised, on each L3 cache that it may run on."""
    return dict.fromkeys(vm["caches"], (vm["ways_requested"] or 0) if vm["policy"] == "exclusive" else 0)
