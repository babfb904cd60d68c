# SPDX-License-Identifier: Apache-2.0
"""A trial: for some seconds the memory bandwidth of one VM is limited, to see whether its neighbour fares better.

A trial is a lease. Its client asks for it again every second. When no question came for :data:`LEASE` seconds, the next
pass puts everything back, so a client may be killed at any moment. Nothing of a trial is written down. An agent that is
started anew knows of none, and its first pass gives each VM what its flavor asks for.

A trial adds a limit to what the flavor asks for (:func:`applied`), and takes nothing away: not a way, and no bandwidth
that a flavor names. So the planner and the other steps of a pass treat it as any request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.vm_record import VmRecord
from vmqos.extra_specs import CacheRequest
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.reason import Code, Reason

LOG = logging.getLogger(__name__)

LEASE = 5.0
"""Seconds after the last question for a trial at which it is over."""

LONGEST = 60.0
"""Seconds that a trial lasts at most, however often its client asks."""

WITHOUT_CLOSID = (Code.NO_CLOSID, Code.WAITS_FOR_CLOSID)


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried.

    :ivar key: the client's own name for it, which no other trial has.
    :ivar process: the VM's process: a VM that is started again is not limited.
    :ivar percent: the limit in per cent, or ``mbps`` in MB/s: one of the two, in the host's unit.
    :ivar limit: what that comes to, in ``unit``, for people.
    :ivar waiting: UUIDs of the VMs that had no CLOSID before the trial began.
    """

    key: str
    uuid: str
    process: Process
    percent: int | None
    mbps: int | None
    limit: int
    unit: str
    waiting: frozenset[str] = frozenset()

    @property
    def reason(self) -> Reason:
        """What is told of the VM meanwhile."""
        text = f"a trial limits its memory bandwidth to {self.limit} {self.unit}, for {LONGEST:g} seconds at most"
        return Reason(Code.TRIAL, f"{text} (vmqos neighbours --confirm)")


def applied(request: FlavorRequest, vm: VirtualMachine, trial: Trial | None) -> FlavorRequest:
    """What a VM's flavor asks for, with the trial's limit added where the trial is about this run of the VM; pure."""
    if trial is None or (vm.uuid, vm.process) != (trial.uuid, trial.process) or why_not(request):
        return request
    wants = replace(request.wants or CacheRequest(), bandwidth_percent=trial.percent, bandwidth_mbps=trial.mbps)
    return replace(request, wants=wants, trial=trial.reason)


def why_not(request: FlavorRequest) -> str:
    """Why nothing may be tried on a VM whose flavor asks for this; empty where a limit may be added to it; pure."""
    asked = request.asked or CacheRequest()
    if request.hands_off:
        return "libvirt placed it by cachetune or memorytune, so vmqos leaves it alone"
    if request.unknown or request.problem:
        return f"it is not known what its flavor promises: {(request.unknown or request.problem).text}"
    if asked.bandwidth_percent is not None or asked.bandwidth_mbps is not None:
        told = f"{asked.bandwidth_percent} %" if asked.bandwidth_percent is not None else f"{asked.bandwidth_mbps} MB/s"
        return f"its flavor gives it {told} of memory bandwidth, and a trial never takes a VM below its promise"
    if asked.vcpus is not None:
        return "its flavor has ways for some of its vCPUs (hw:cache_vcpus), and only these would be limited"
    return ""


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
        """Begin a trial: the next pass puts the limit in force.

        :raises TrialRefused: if another one runs, or the agent ends.
        """
        with self._lock:
            if self._is_closed:
                raise TrialRefused("the agent ends: nothing is tried")
            if (other := self._current()) is not None:
                raise TrialRefused(f"a trial on VM {other.uuid} runs already: one is possible at a time")
            now = self._clock()
            self._trial, self._in_force = trial, False
            self._asked_at, self._ends_at = now, now + LONGEST
        LOG.info(
            "a trial on VM %s begins: its memory bandwidth is limited to %d %s", trial.uuid, trial.limit, trial.unit
        )
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

    def note(self, snapshot: Snapshot) -> None:
        """Note what a pass has made of the trial, and end it where it may not go on.

        A promise goes before a trial: where a VM lacks a CLOSID that did not lack one before, the trial ends.
        """
        with self._lock:
            trial = self._current()
            if trial is None:
                return
            record = snapshot.vms.get(trial.uuid)
            self._in_force = record is not None and is_in_force(record)
            if record is None or record.observed.vm.process != trial.process:
                self._end("the VM has ended")
            elif lacking := sorted(without_closid(snapshot) - trial.waiting):
                self._end(f"VM {lacking[0]} needs a class of service (CLOSID)")

    @property
    def _deadline(self) -> float:
        return min(self._asked_at + LEASE, self._ends_at)

    def _current(self) -> Trial | None:
        """The trial, unless its time is over now."""
        now = self._clock()
        if self._trial is not None and now >= self._deadline:
            self._end(
                f"it lasted for {LONGEST:g} s" if now >= self._ends_at else f"nobody asked for it for {LEASE:g} s"
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


def is_in_force(record: VmRecord) -> bool:
    """Whether a VM on which something is tried is limited with all its tasks; pure."""
    given, tasks = record.allocation, record.tasks
    if not record.request.trial or not given.throttles or record.failure is not None or tasks is None:
        return False
    return tasks.target.control == given.group and tasks.in_place == tasks.tasks


def without_closid(snapshot: Snapshot) -> frozenset[str]:
    """UUIDs of the VMs that lack what they were promised because no CLOSID is free; pure."""
    return frozenset(uuid for uuid, record in snapshot.vms.items() if record.allocation.reason.code in WITHOUT_CLOSID)
