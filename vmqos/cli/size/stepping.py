# SPDX-License-Identifier: Apache-2.0
"""The experiment of ``vmqos size``: a VM is let have one more way after the other, and is watched with each.

It begins with what the VM was promised and goes up only, for the reasons that :mod:`vmqos.insight.size` has. Whatever
ends this process, the ways are free again some seconds later (:mod:`vmqos.cli.common.lease`).

A VM in a class begins with as many ways for itself as the class has. A VM that is promised no ways begins with as many
as the operator says. Both leave ways behind that they filled, and find there what they brought in until other VMs have
taken it. So numbers of ways do not count with which much is left there (:mod:`vmqos.cli.size.leaving`). A VM whose ways
come to lie elsewhere in part when it gets one more leaves something, too. That is not counted apart, so it is waited
for.

Of a VM with ways for code and for data apart, those for data are tried, or those for code, while the others stay as
they are. Code and data fill ways of their own, so what the ones would miss does not depend on how many ways the others
have. The VM's misses are counted together; so the curve is that of the part that is tried, and above it what the other
part misses all the time.

A VM with ways for some of its vCPUs is not sized. Its counters are those of all its tasks. The others of these fill
what no VM has alone, which is less with each way that is tried: they miss more while the vCPUs in question miss less.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vmqos.cli import exceptions
from vmqos.cli.common.lease import ANSWER_TIME, PATIENCE, PAUSE, Lease, lease
from vmqos.cli.neighbours import ask
from vmqos.cli.show import units
from vmqos.cli.show.safe_text import display_name
from vmqos.cli.size import leaving
from vmqos.cli.size.tell import tell
from vmqos.insight import size as law
from vmqos.insight.model import Sample
from vmqos.insight.size import Point, Size
from vmqos.local_api import contract
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import LocalApiError

LONGEST = 900.0
"""Seconds after which the agent ends a trial of ways."""
SPARE = 30.0
"""Of these, the seconds that are left for what is not watching."""
FEWEST = law.FEWEST + 2
"""Samples that a step takes at least: the first tells of the time before it, too."""
LATE = 3
"""Samples that may be missing before the agent is taken not to count any more."""

Part = contract.WaysFor
"""Which ways of a VM are tried: those for code, those for data, or those that are for both."""
PARTS: Sequence[Part] = ("data", "code")
SPECS: Mapping[Part, str] = {"": "hw:cache_ways", "code": "hw:cache_code_ways", "data": "hw:cache_data_ways"}
OTHER: Mapping[Part, Part] = {"code": "data", "data": "code"}
"""The one that stays as it is while the other is tried."""

NOT_APART = "its flavor has no ways for code and for data apart (hw:cache_code_ways), so --part does not suit it"
SOME_VCPUS = (
    "its flavor has ways for some of its vCPUs (hw:cache_vcpus). Its counters are those of all its tasks, and the "
    "others of these have fewer ways to fill with each that is tried, so the curve would not be that of the ways. Size "
    "a VM instead that does the same, and whose flavor has the ways for all vCPUs: what that one needs is enough"
)

NO_WAYS = (
    "its flavor promises it no ways (hw:cache_ways), so it fills all that no VM has alone; with ways of its own it may "
    "have fewer to fill, and be slower for some minutes. If it may be, say with how many to begin, such as --from 1"
)

Report = Callable[[int, float], None]
"""Is told with how many ways the VM is watched, and which part of the time that this takes at most has passed."""


@dataclass(frozen=True, slots=True)
class Room:
    """What can be tried.

    :ivar base: how many ways the VM has for itself, on each L3 that it runs on; 0 where it has none.
    :ivar first: how many it is tried with first.
    :ivar most: how many it is tried with at most.
    :ivar free: how many more it could have.
    :ivar part: which ways are tried: where code and data have ways apart, these are those of one of the two.
    :ivar other: how many ways the other one of the two has.
    :ivar is_cut: whether it was tried with fewer ways than ``first``, too, which do not count.
    :ivar way_bytes: bytes in a way, of all caches that it runs on; NaN where that is not known.
    """

    vm: contract.Vm
    base: int
    first: int
    most: int
    free: int
    part: Part = ""
    other: int = 0
    way_bytes: float = math.nan
    is_cut: bool = False

    @property
    def is_in_class(self) -> bool:
        """Whether it shares ways with others."""
        return is_in_class(self.vm)

    @property
    def may_fill_fewer(self) -> bool:
        """Whether it has no ways, and so may have fewer to fill than it fills now."""
        return not (self.base or self.is_in_class)

    @property
    def leaving(self) -> float:
        """Seconds that are waited at most for what it leaves behind at the beginning."""
        return 0.0 if self.base else leaving.LONGEST

    def bytes_in(self, ways: int) -> float:
        """How much fits in so many ways, with those of the other part."""
        return (ways + self.other) * self.way_bytes

    def tried(self, ways: int) -> str:
        """What the agent is to try, as extra specs."""
        both: dict[Part, int] = {self.part: ways, OTHER[self.part]: self.other} if self.part else {"": ways}
        return " ".join(f"{SPECS[part]}={number}" for part, number in both.items())


@dataclass(frozen=True, slots=True)
class Sized:
    """What came of it.

    :ivar points: what the VM did with each number of ways, the fewest first.
    :ivar ended: why no further ways were tried; empty where all were.
    :ivar seconds: how long it took.
    :ivar held_before: bytes that a VM without ways of its own held; NaN of any other, or where nothing counts them.
    :ivar not_counted: numbers of ways that it was tried with, and that do not count, for it found much in others.
    :ivar left_unseen: whether it left ways that it had filled, and nothing counts what it still finds there.
    """

    room: Room
    found: Size
    points: tuple[Point, ...]
    ended: str
    seconds: float
    held_before: float = math.nan
    not_counted: tuple[int, ...] = ()
    left_unseen: bool = False

    @property
    def tried(self) -> int:
        """The most ways that the VM was tried with."""
        return self.points[-1].ways


def find(agent: AgentClient, vm: contract.Vm, first: int | None, most: int | None, part: Part = "") -> Room:
    """From how many to how many ways a VM can be tried.

    :param first: with how many to begin, as the operator said; ``None``: with those that it is promised.
    :param most: how many at most, as the operator said; ``None``: all that are free.
    :param part: which of its ways are tried, if it has ways for code and for data apart; those for data unless given.
    :raises vmqos.cli.exceptions.NothingToSize: if it can't be let have ways of its own, or its promise is not kept; or
        if it is promised none, and the operator did not say with how many to begin.
    :raises vmqos.cli.exceptions.NoFreeWays: if there are no others.
    :raises vmqos.cli.exceptions.TooManyToBegin: if the operator begins with all that there are, or with more.
    :raises vmqos.cli.exceptions.TooFewFreeWays: if there are too few for a VM that has none of its own.
    """
    name, apart = display_name(vm), bool(vm.get("code_ways_requested"))
    if problem := _why_not(vm) or (NOT_APART if part and not apart else ""):
        raise exceptions.NothingToSize(vm=name, problem=problem)
    part = (part or "data") if apart else ""
    promised = max(_ways(vm, part).values()) if vm["ways_requested"] else 0
    other = max(_ways(vm, OTHER[part]).values()) if part else 0
    if first is None:
        if not promised:
            raise exceptions.NothingToSize(vm=name, problem=NO_WAYS)
        first = promised
    if first < promised:
        raise exceptions.NotTogether(
            problem=f"--from {first} is below the {promised} ways that {name} is promised", command="size"
        )
    if most is not None and most <= first:
        told = "that it has" if first == promised else "with which it begins"
        raise exceptions.NotTogether(problem=f"--most {most} is not above the {first} ways {told}", command="size")
    if not promised or is_in_class(vm):
        base, free = 0, _free(agent, vm["caches"], "largest_free_run")
    else:
        base, free = promised, _free(agent, map(int, vm["masks"]), "free_ways")
    least = min(free, key=lambda cache: free[cache], default=None)
    # A VM that leaves its class needs ways for the other part, too.
    reach = base + free[least] - (0 if base else other) if least is not None else 0
    if least is None or reach <= first:
        cache = "-" if least is None else least
        if base and base < reach:
            raise exceptions.TooManyToBegin(wanted=first, vm=name, ways=base, free=reach - base, cache=cache)
        if base:
            raise exceptions.NoFreeWays(cache=cache, ways=base, vm=name)
        raise exceptions.TooFewFreeWays(cache=cache, free=reach, ways=first, vm=name)
    way_bytes = _way_bytes(agent, free)
    return Room(vm, base, first, reach if most is None else min(most, reach), free[least], part, other, way_bytes)


def is_in_class(vm: contract.Vm) -> bool:
    """Whether a VM shares ways with others."""
    return vm["policy"] == "shared" and bool(vm["ways_requested"])


def _why_not(vm: contract.Vm) -> str:
    """Why a VM can't be let have ways of its own, whatever the operator says; empty where it can."""
    if vm.get("reason_code") == "cachetune":
        return vm["reason"]
    if vm.get("vcpus_requested"):
        return SOME_VCPUS
    if vm["state"] not in ("kept", "none") or (vm["ways_requested"] and not vm["masks"]):
        return f"its promise is {vm['state']} now: {vm['reason']}"
    return ""


def _free(agent: AgentClient, caches: Iterable[int], field: Literal["free_ways", "largest_free_run"]) -> dict[int, int]:
    """How many ways no VM has, by L3 cache of a VM.

    :param field: whether they are all, for a VM that has its own beside them, or those in one piece, for a VM without.
    """
    wanted = set(caches)
    found = {one["id"]: one[field] for one in agent.caches() if one["resource"] == "L3"}
    # Where nothing says which caches it may run on, it gets ways on each.
    return {cache: ways for cache, ways in found.items() if not wanted or cache in wanted}


def _way_bytes(agent: AgentClient, caches: Iterable[int]) -> float:
    """Bytes in a way, of these L3 caches together; NaN where one of them is not known."""
    sizes = {one["id"]: one["way_bytes"] for one in agent.caches() if one["resource"] == "L3"}
    return sum(sizes.get(cache) or math.nan for cache in caches)


def free_ways(agent: AgentClient) -> dict[int, int]:
    """How many ways no VM has, by L3 cache."""
    return {cache["id"]: cache["free_ways"] for cache in agent.caches() if cache["resource"] == "L3"}


def check(room: Room, interval: float) -> None:
    """Check that there are enough samples of each step.

    :param interval: seconds between two samples.
    :raises vmqos.cli.exceptions.NothingSampled: if there are none.
    :raises vmqos.cli.exceptions.TooSeldom: if a trial is too short for them.
    """
    if not interval:
        raise exceptions.NothingSampled()
    if FEWEST * interval * (room.most - room.first + 1) > LONGEST - SPARE - room.leaving:
        raise exceptions.TooSeldom(interval=interval, longest=LONGEST)


def run(agent: AgentClient, room: Room, interval: float, report: Report) -> Sized:
    """Let the VM have one more way after the other, and say how many it needs.

    However this ends, the ways are given back first.

    :param interval: seconds between two samples.
    :raises vmqos.local_api.exceptions.LocalApiError: if nothing can be tried, or the agent answers no more before there
        is anything to compare.
    :raises vmqos.cli.exceptions.TrialLost: if the trial ends before that.
    :raises vmqos.cli.exceptions.NotCounted: if what the VM does is not known.
    :raises vmqos.cli.exceptions.NotPutBack: if the VM does not have again what it had.
    """
    began, points, ended, moved = time.monotonic(), list[Point](), "", False
    lies, left_bytes = _lies(room.vm), dict[int, float]()
    before = math.nan if room.base else _held(agent, room.vm["uuid"])
    with lease(agent, room.vm, _has, _told) as held:
        for ways in range(room.first, room.most + 1):
            try:
                left = held.begin(room.tried(ways), may_fill_fewer=room.may_fill_fewer)["seconds_left"]
                wait, now = room.leaving if ways == room.first else 0.0, _lies_now(held)
                if (room.base or ways > room.first) and any(bits & ~now.get(where, 0) for where, bits in lies.items()):
                    wait, moved = leaving.LONGEST, True
                lies = now or lies
                budget = max(FEWEST * interval, (left - SPARE - wait) / (room.most - ways + 1))
                if wait:
                    _wait_until_gone(held, room.bytes_in(ways), functools.partial(report, ways, 0.0))
                samples = _watched(held, room, interval, budget, functools.partial(report, ways))
                left_bytes[ways] = math.nan if room.base else held.left()
            except (LocalApiError, exceptions.TrialLost, exceptions.NotCounted) as error:
                if len(points) < 2:
                    raise
                # What was counted so far is right, and with fewer ways than were to be tried.
                ended = why(error)
                break
            points.append(law.point(ways, samples))
            # What a VM misses that has left ways behind may be too little.
            is_known = bool(room.base) or (len(points) > 1 and leaving.counts(left_bytes[ways], room.bytes_in(ways)))
            if ways < room.most and is_known and points[-1].missed <= law.SURE:
                ended = f"with {ways} ways it misses next to nothing"
                break
    counted = _counted(room, points, left_bytes)
    try:
        found = law.size(counted)
    except ValueError as error:
        raise exceptions.NotCounted(vm=display_name(room.vm), problem=error) from error
    is_seen = math.isfinite(room.way_bytes) and not any(map(math.isnan, left_bytes.values()))
    sized = Sized(
        replace(room, first=counted[0].ways, is_cut=counted[0] is not points[0]),
        found,
        tuple(counted),
        ended,
        time.monotonic() - began,
        before,
        tuple(one.ways for one in points if one not in counted),
        left_unseen=moved or not (room.base or is_seen),
    )
    tell(agent, room.vm, found, room.part)
    return sized


def _counted(room: Room, points: Sequence[Point], left: Mapping[int, float]) -> list[Point]:
    """What a VM did with those numbers of ways with which it found little in ways that it had left.

    :param left: bytes that were left there, by ways.
    :raises vmqos.cli.exceptions.LivesOnMore: if there are too few of them to say anything.
    """
    counted = [one for one in points if leaving.counts(left[one.ways], room.bytes_in(one.ways))]
    if len(counted) > 1 or (counted and counted[0].missed <= law.ENOUGH):
        return counted
    last = [one.ways for one in points if one not in counted][-1]
    left_then, fits = units.size(left[last]), units.size(room.bytes_in(last))
    raise exceptions.LivesOnMore(vm=display_name(room.vm), ways=last, left=left_then, fits=fits)


def why(error: exceptions.CommandError | LocalApiError) -> str:
    """Why something could not be tried, without what the operator should do."""
    return str(error.values.get("problem") or error.values.get("text") or error)


def _watched(held: Lease, room: Room, interval: float, budget: float, report: Callable[[float], None]) -> list[Sample]:
    """The samples of a VM, once they are enough, or have taken long enough.

    :param budget: how many seconds they may take.
    :param report: is told the part of this time that has passed.
    :raises vmqos.cli.exceptions.NotCounted: if there are none.
    """
    client, uuid = replace(held.client, timeout=ANSWER_TIME), room.vm["uuid"]
    new, began, found = ask.NewSamples(client), time.monotonic(), list[Sample]()
    while True:
        held.renew()
        found += map(ask.plain, new.take().get(uuid, []))
        # A sample tells of the time since the one before, so the first does not count.
        samples, passed = found[1:], time.monotonic() - began
        report(min(1.0, passed / budget))
        if law.is_enough(samples) or (samples and passed >= budget):
            return samples
        if passed >= budget + max(PATIENCE, LATE * interval):
            raise exceptions.NotCounted(vm=display_name(room.vm), problem="the agent does not read its counters")
        time.sleep(PAUSE)


def _wait_until_gone(held: Lease, fits: float, report: Callable[[], None]) -> None:
    """Wait until what a VM left in other ways is gone, or waiting for it is of no use any more.

    :param fits: bytes that fit in its ways.
    """
    ends, left = time.monotonic() + leaving.LONGEST, list[float]()
    while time.monotonic() < ends and not leaving.is_gone(left, fits):
        report()
        time.sleep(min(leaving.LOOK, max(0.0, ends - time.monotonic())))
        left.append(held.left())


def _held(agent: AgentClient, uuid: str) -> float:
    """Bytes that a VM holds now; NaN where nothing counts them."""
    last = ask.samples(agent)["samples"].get(uuid, [])[-1:]
    return sum(last[0]["occupancy"].values()) if last and last[0]["occupancy"] else math.nan


def _masks(vm: contract.Vm, part: Part = "") -> Mapping[str, str]:
    """The ways that a VM has for code, or for data, or for both."""
    return vm.get("code_masks", {}) if part == "code" else vm.get("data_masks", {}) if part else vm["masks"]


def _ways(vm: contract.Vm, part: Part = "") -> dict[str, int]:
    """How many ways the VM has, by cache."""
    return {cache: units.parse_mask(mask).bit_count() for cache, mask in _masks(vm, part).items()}


def _lies(vm: contract.Vm) -> dict[tuple[Part, str], int]:
    """Where the VM's ways lie, by what they are for and the cache."""
    parts: tuple[Part, ...] = ("code", "data") if vm.get("code_masks") else ("",)
    return {(part, cache): units.parse_mask(mask) for part in parts for cache, mask in _masks(vm, part).items()}


def _lies_now(held: Lease) -> dict[tuple[Part, str], int]:
    """Where they lie now; empty where the VM has ended, or the agent does not say."""
    try:
        return next((_lies(vm) for vm in held.client.vms() if vm["uuid"] == held.uuid), {})
    except LocalApiError:
        return {}


def _has(vm: contract.Vm) -> tuple[str, dict[str, int]]:
    """What the VM is to have again at the end: it is in this control group, and has so many ways, by cache."""
    return vm["group"], _ways(vm)


def _told(vm: contract.Vm) -> str:
    return f"its ways are {units.ways_by_cache(vm['masks'])}"
