# SPDX-License-Identifier: Apache-2.0
"""A trial: for some seconds the memory bandwidth of one VM is limited, or it has other ways, to see what that does.

A limit shows whether the VM's neighbour fares better; so do a few ways that the VM is confined to, where the neighbour
lacks cache. More ways show how many the VM needs; while such a trial runs, its client may ask for still more
(:meth:`Trial.goes_on_from`).

A trial is a lease. Its client asks for it again every second. When no question came for :data:`LEASE` seconds, the next
pass puts everything back, so a client may be killed at any moment. Nothing of a trial is written down. An agent that is
started anew knows of none, and its first pass gives each VM what its flavor asks for.

A trial adds a limit, or ways, to what the flavor asks for (:func:`applied`), and takes nothing away: not a way, and no
bandwidth that a flavor names. So the planner and the other steps of a pass treat it as any request. Ways come of those
that are free: a pass that finds that another VM would have less for them gives none (:func:`what_others_lose`).

A VM with ways for code and data apart has more of the one, or of the other. Nothing is tried on a VM with ways for some
of its vCPUs: what the others of its tasks do is counted with these, and they fill what no VM has alone, which is less
with each way that is tried. So what is counted would not be what the ways do.

The ways that are tried are always the VM's own. A VM that shares those of its class leaves it meanwhile, and has as
many as the class at least; its place in the class is kept for it (:func:`kept_place`), so that it can go back at any
moment. A VM that is promised no ways fills all that no VM has alone. It may fill fewer during a trial, and so be
slower: no promise is broken, but its client has to say that it may (:attr:`Trial.may_fill_fewer`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Plan, PromiseState, Request, caches
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.reason import Code, Reason

LOG = logging.getLogger(__name__)

LEASE = 5.0
"""Seconds after the last question for a trial at which it is over."""

LONGEST = 60.0
"""Seconds that a limit of bandwidth is tried at most, however often the client asks."""

LONGEST_OF_WAYS = 900.0
"""Seconds that ways are tried at most, from the first of them to the last: each of them is to be filled first."""

WAYS = "ways"
"""The unit of a trial of ways."""

_PLACE = "place of "
"""What the name of a request begins with that keeps a VM's class; no UUID begins so."""

WITHOUT_CLOSID = (Code.NO_CLOSID, Code.WAITS_FOR_CLOSID)


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried.

    :ivar key: the client's own name for it, which no other trial has.
    :ivar process: the VM's process: a VM that is started again is not limited.
    :ivar percent: the limit in per cent, or ``mbps`` in MB/s: one of the two, in the host's unit; ``None`` of ways.
    :ivar limit: what that comes to, in ``unit``, for people; of ways how many these are.
    :ivar waiting: UUIDs of the VMs that had no CLOSID before the trial began.
    :ivar ways: how many L3 ways it has for itself, if its flavor does not promise more; ``None`` of a limit.
    :ivar code: how many of these are for code, and the others for data; ``None`` where all are for both.
    :ivar may_fill_fewer: whether a VM that is promised no ways may have fewer to fill meanwhile than it fills now.
    :ivar confines: whether the ways are to keep it from those that others fill, and not to show how many it needs.
    """

    key: str
    uuid: str
    process: Process
    percent: int | None
    mbps: int | None
    limit: int
    unit: str
    waiting: frozenset[str] = frozenset()
    ways: int | None = None
    may_fill_fewer: bool = False
    code: int | None = None
    confines: bool = False

    @property
    def data(self) -> int | None:
        """How many of the ways are for data; ``None`` where all are for code and data."""
        return None if self.code is None or self.ways is None else self.ways - self.code

    @property
    def longest(self) -> float:
        """Seconds that it lasts at most."""
        return LONGEST if self.ways is None or self.confines else LONGEST_OF_WAYS

    @property
    def told(self) -> str:
        """What it does to the VM, for people."""
        if self.ways is None:
            return f"its memory bandwidth is limited to {self.limit} {self.unit}"
        only = "fills" if self.confines else "has"
        return f"it {only} {self._counted} if its flavor does not promise more"

    @property
    def reason(self) -> Reason:
        """What is told of the VM meanwhile."""
        if self.confines:
            longest = f"{LONGEST:g} seconds at most (vmqos neighbours --confirm)"
            return Reason(Code.TRIAL, f"a trial lets it fill {self._counted} and no others, for {longest}")
        if self.ways is not None:
            longest = f"{LONGEST_OF_WAYS / 60:g} minutes at most"
            return Reason(Code.TRIAL, f"a trial lets it have {self._counted}, for {longest} (vmqos size)")
        text = f"a trial limits its memory bandwidth to {self.limit} {self.unit}, for {LONGEST:g} seconds at most"
        return Reason(Code.TRIAL, f"{text} (vmqos neighbours --confirm)")

    def goes_on_from(self, other: Trial) -> bool:
        """Whether this is the next step of a trial of ways: the same client's, and with no fewer ways."""
        is_same = (self.key, self.uuid, self.process) == (other.key, other.uuid, other.process)
        if not is_same or self.ways is None or other.ways is None or self.confines or other.confines:
            return False
        if self.code is None or self.data is None or other.code is None or other.data is None:
            return self.code is other.code and self.ways >= other.ways
        return self.code >= other.code and self.data >= other.data

    @property
    def _counted(self) -> str:
        if self.code is None:
            return "1 way" if self.ways == 1 else f"{self.ways} ways"
        return f"{'1 way' if self.code == 1 else f'{self.code} ways'} for code and {self.data} for data"


def applied(request: FlavorRequest, vm: VirtualMachine, trial: Trial) -> FlavorRequest:
    """What a VM's flavor asks for, with what the trial adds where the trial is about this run of the VM; pure."""
    if (vm.uuid, vm.process) != (trial.uuid, trial.process):
        return request
    if why_not(request, trial.ways, code=trial.code, may_fill_fewer=trial.may_fill_fewer, confines=trial.confines):
        return request
    if trial.ways is not None:
        own = replace(_with_ways(request.wants or CacheRequest(), trial), policy=CachePolicy.EXCLUSIVE)
        return replace(request, wants=own, trial=trial.reason)
    wants = replace(request.wants or CacheRequest(), bandwidth_percent=trial.percent, bandwidth_mbps=trial.mbps)
    return replace(request, wants=wants, trial=trial.reason)


def _with_ways(wants: CacheRequest, trial: Trial) -> CacheRequest:
    """What a VM is to have with the ways that are tried: no fewer of either kind than without."""
    if trial.code is None or trial.data is None:
        return replace(wants, ways=max(wants.ways or 0, trial.ways or 0))
    code, data = max(wants.code_ways or 0, trial.code), max(wants.data_ways or 0, trial.data)
    return replace(wants, code_ways=code, data_ways=data)


def why_not(
    request: FlavorRequest,
    ways: int | None = None,
    *,
    code: int | None = None,
    may_fill_fewer: bool = False,
    confines: bool = False,
) -> str:
    """Why nothing may be tried on a VM whose flavor asks for this; empty where something may be added to it; pure.

    :param ways: how many ways it is to have; ``None`` where it is to be limited.
    :param code: how many of these for code, and the others for data; ``None``: all for both.
    :param may_fill_fewer: whether a VM that is promised no ways may have fewer to fill than it fills now.
    :param confines: whether the ways are to keep it from those that others fill.
    """
    asked = request.asked or CacheRequest()
    if request.hands_off:
        return "libvirt placed it by cachetune or memorytune, so vmqos leaves it alone"
    if request.unknown or request.problem:
        return f"it is not known what its flavor promises: {(request.unknown or request.problem).text}"
    if confines and asked.l3_ways and asked.policy is not CachePolicy.SHARED:
        return "its flavor gives it ways of its own, and it fills no others, so it takes no cache from any VM"
    if ways is not None:
        return _why_no_ways(asked, apart=code is not None, may_fill_fewer=may_fill_fewer)
    if asked.bandwidth_percent is not None or asked.bandwidth_mbps is not None:
        told = f"{asked.bandwidth_percent} %" if asked.bandwidth_percent is not None else f"{asked.bandwidth_mbps} MB/s"
        return f"its flavor gives it {told} of memory bandwidth, and a trial never takes a VM below its promise"
    if asked.vcpus is not None:
        return "its flavor has ways for some of its vCPUs (hw:cache_vcpus), and only these would be limited"
    return ""


def _why_no_ways(asked: CacheRequest, *, apart: bool, may_fill_fewer: bool) -> str:
    if asked.vcpus is not None:
        return (
            "its flavor has ways for some of its vCPUs (hw:cache_vcpus); what its other tasks do is counted with "
            "these, and they have fewer ways to fill with each that is tried, so nothing would follow from the counts"
        )
    if apart and asked.code_ways is None:
        return "its flavor has no ways for code and for data apart (hw:cache_code_ways, hw:cache_data_ways)"
    if asked.code_ways is not None and not apart:
        return (
            "its flavor has ways for code and for data apart: say how many of each are tried (hw:cache_code_ways, "
            "hw:cache_data_ways)"
        )
    if not asked.l3_ways and not may_fill_fewer:
        return (
            "its flavor promises it no ways (hw:cache_ways), so it fills all that no VM has alone: with ways of its "
            "own, it may have fewer to fill, and be slower; the request does not say that it may (may_fill_fewer=true)"
        )
    return ""


def untried(snapshot: Snapshot, requests: Sequence[Request] | None = None) -> tuple[Request, ...]:
    """What the planner was asked for, with what the flavor promises in the place of ways that are only tried; pure.

    :param requests: some of these; all that are in the snapshot unless given.
    """
    found = []
    for one in snapshot.requests if requests is None else requests:
        record = snapshot.vms.get(one.uuid)
        if record is None or not tries_ways(record.request):
            if not one.uuid.startswith(_PLACE):
                found.append(one)
        elif record.request.asked is not None:
            found.append(replace(one, wants=record.request.asked, wants_on={}))
    return tuple(found)


def tries_ways(request: FlavorRequest) -> bool:
    """Whether a VM may have other ways than those that it is promised, because they are tried; pure."""
    wants, asked = request.wants, request.asked or CacheRequest()
    return bool(request.trial) and wants is not None and _ways_and_policy(wants) != _ways_and_policy(asked)


def tries_any_ways(records: Mapping[str, VmRecord]) -> bool:
    """Whether a VM of these may have other ways than it is promised, because they are tried; pure."""
    return any(tries_ways(record.request) for record in records.values())


def _ways_and_policy(wants: CacheRequest) -> tuple[object, ...]:
    return wants.ways, wants.code_ways, wants.data_ways, wants.policy


def leaves_its_place(request: FlavorRequest) -> bool:
    """Whether a VM has left the default group, or its class, because ways of its own are tried on it; pure.

    What it brought in there it still finds, and its monitoring group goes on counting that.
    """
    asked = request.asked or CacheRequest()
    return tries_ways(request) and (not asked.l3_ways or asked.policy is CachePolicy.SHARED)


def kept_place(request: FlavorRequest, tried: Request) -> Request | None:
    """What keeps the class of a VM as it is while the VM has left it for a trial; ``None`` of any other VM; pure.

    A VM leaves its class for ways of its own, or for the class with the limit that is tried. The class keeps its
    CLOSID, and the pool as many ways as the class may fill. So a VM that comes meanwhile can't take what this one needs
    to be back in its class.

    :param tried: what the planner is asked for this VM.
    """
    asked = request.asked
    if asked is None or not request.trial:
        return None
    is_limit_alone = not asked.l3_ways and asked.l2_ways is None and asked.bandwidth_percent is not None
    if asked.policy is not CachePolicy.SHARED and not is_limit_alone:
        return None
    return replace(tried, uuid=_PLACE + tried.uuid, wants=asked)


def what_others_lose(found: Plan, without: Plan, uuid: str) -> str:
    """Why another VM would have less for what is tried on one; empty where none has; pure.

    :param found: the plan with the trial, and ``without`` it.
    :param uuid: the VM's on which it is tried.
    """
    for other, before in without.allocations.items():
        given = found.allocations.get(other)
        if other == uuid or given is None or given.state is PromiseState.KEPT:
            continue
        is_alike = given.state is before.state and given.reason.code is before.reason.code
        if not is_alike or _has_fewer(given, before):
            return f"VM {other} would have less for it: {given.reason.text}"
    return ""


def _has_fewer(given: Allocation, before: Allocation) -> bool:
    """Whether there are fewer ways on any cache."""
    now = given.masks
    return any(cache not in now or now[cache].count < mask.count for cache, mask in before.masks.items())


class TrialRefused(Exception):
    """There is no such trial, or it can't begin; the text says why."""


class Trials:
    """The one trial that may run, between the threads that answer requests and the one that makes passes.

    :param on_change: called, by any thread, when a trial has begun or is over: a pass has to follow.
    :param clock: monotonic seconds.
    """

    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()
        self._trial: Trial | None = None
        self._asked_at = self._ends_at = 0.0
        self._in_force = False
        self._over = ("", "")
        self._is_closed = False

    @property
    def running(self) -> Trial | None:
        """The trial that runs; ``None`` once its time or its lease is over."""
        with self._lock:
            return self._current()

    @property
    def due(self) -> float | None:
        """Seconds until the trial is over, if no further question comes; ``None`` where none runs."""
        with self._lock:
            return None if self._current() is None else max(0.0, self._deadline - self._clock())

    def state(self) -> tuple[Trial, bool, float] | None:
        """The trial, whether the limit is in force, and the seconds that it may last yet; ``None`` where none runs."""
        with self._lock:
            trial = self._current()
            return None if trial is None else (trial, self._in_force, max(0.0, self._ends_at - self._clock()))

    def begin(self, trial: Trial) -> None:
        """Begin a trial, or the next step of one that runs: the next pass puts it in force.

        What is left of its time is not longer for a further step.

        :raises TrialRefused: if another one runs, or the agent ends.
        """
        with self._lock:
            if self._is_closed:
                raise TrialRefused("the agent ends: nothing is tried")
            other, now = self._current(), self._clock()
            if other is not None and not trial.goes_on_from(other):
                raise TrialRefused(_why_not_beside(trial, other))
            if other is None:
                self._ends_at = now + trial.longest
            self._trial, self._in_force, self._asked_at = trial, False, now
        LOG.info("a trial on VM %s %s: %s", trial.uuid, "begins" if other is None else "goes on", trial.told)
        self._on_change()

    def renew(self, key: str) -> None:
        """Ask for a trial again.

        :raises TrialRefused: if it is over; the text says why, if it was the last one.
        """
        with self._lock:
            self._check(key)
            self._asked_at = self._clock()

    def end(self, key: str) -> None:
        """Give a trial back: the next pass puts everything back.

        :raises TrialRefused: if it is over.
        """
        with self._lock:
            self._check(key)
            self._end("its client gave it back")

    def close(self) -> bool:
        """End the trial, because the agent ends, and let none begin; returns whether one ran."""
        with self._lock:
            self._is_closed = True
            is_running = self._current() is not None
            if is_running:
                self._end("the agent ends")
            return is_running

    def note(self, snapshot: Snapshot, given_up: tuple[Trial, str] | None = None) -> None:
        """Note what a pass has made of the trial, and end it where it may not go on.

        A promise goes before a trial: where a VM lacks a CLOSID that did not lack one before, a limit ends. Ways that
        take one, because the VM has no group of its own, are given up by the pass itself (:func:`what_others_lose`).

        :param given_up: the trial that the pass did not carry out, and why; ``None`` where there is none.
        """
        with self._lock:
            trial = self._current()
            if trial is None:
                return
            record = snapshot.vms.get(trial.uuid)
            self._in_force = record is not None and is_in_force(record, trial)
            if record is None or record.observed.vm.process != trial.process:
                self._end("the VM has ended")
            elif given_up is not None and (trial == given_up[0] or trial.goes_on_from(given_up[0])):
                self._end(given_up[1])
            elif trial.ways is None and (lacking := sorted(without_closid(snapshot) - trial.waiting)):
                self._end(f"VM {lacking[0]} needs a class of service (CLOSID)")

    @property
    def _deadline(self) -> float:
        return min(self._asked_at + LEASE, self._ends_at)

    def _current(self) -> Trial | None:
        """The trial, unless its time is over now."""
        now = self._clock()
        if self._trial is not None and now >= self._deadline:
            self._end(
                f"it lasted for {self._trial.longest:g} s"
                if now >= self._ends_at
                else f"nobody asked for it for {LEASE:g} s"
            )
        return self._trial

    def _check(self, key: str) -> None:
        trial = self._current()
        if trial is None or trial.key != key:
            over, why = self._over
            raise TrialRefused(f"this trial is over: {why}" if key and key == over else "there is no such trial")

    def _end(self, why: str) -> None:
        assert self._trial is not None
        LOG.info("the trial on VM %s is over: %s", self._trial.uuid, why)
        self._over = (self._trial.key, why)
        self._trial, self._in_force = None, False
        self._on_change()


def _why_not_beside(trial: Trial, other: Trial) -> str:
    steps = all(one.ways is not None and not one.confines for one in (trial, other))
    if steps and (trial.key, trial.uuid) == (other.key, other.uuid):
        return f"this trial is at {other.limit} ways, and goes up only"
    return f"a trial on VM {other.uuid} runs already: one is possible at a time"


def is_in_force(record: VmRecord, trial: Trial) -> bool:
    """Whether a VM on which something is tried has it with all its tasks; pure."""
    given, tasks = record.allocation, record.tasks
    if not record.request.trial or record.failure is not None or tasks is None:
        return False
    if trial.ways is None:
        if not given.throttles:
            return False
    elif trial.code is not None and trial.data is not None:
        parts = caches.of_level(3, given.splits).values()
        if not parts or any(of.code.count < trial.code or of.data.count < trial.data for of in parts):
            return False
    elif min((mask.count for mask in caches.of_level(3, given.masks).values()), default=0) < trial.ways:
        return False
    return tasks.target.control == given.group and tasks.in_place == tasks.tasks


def without_closid(snapshot: Snapshot) -> frozenset[str]:
    """UUIDs of the VMs that lack what they were promised because no CLOSID is free; pure."""
    return frozenset(
        uuid for uuid, record in snapshot.vms.items() if any(map(record.allocation.reason.has, WITHOUT_CLOSID))
    )
