# SPDX-License-Identifier: Apache-2.0
"""What the VMs' tasks execute: hardware events, read beside the loop by a thread of their own.

They stand for themselves. Where the kernel does not count them, for one VM or for all, nothing else of the agent is
different.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

from oslo_config import cfg

from vmqos.agent.vm_record import VmRecord
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.exceptions import HypervisorError, ProcessVanished
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.telemetry import descriptors, hardware_events
from vmqos.telemetry.exceptions import HardwareEventsError, NoFilesLeft, TasksKeepComing, TooManyTasks
from vmqos.telemetry.hardware_events import HARDWARE, MOST_TASKS, CountedTasks, TasksTogether, WhyNot
from vmqos.telemetry.perf_event import Event, Growth

LOG = logging.getLogger(__name__)

MOST_FILES = 32768
"""Files that are open for the counters at most, each with about 1.5 KiB of the kernel's memory. 200 VMs of 20 threads
take 16 000 where the agent is started after them, and 800 where it was there before."""

YOUNG = 1.0
"""Seconds after the start of a VM's process until it is counted. At first it is libvirt's, which starts QEMU in it some
50 ms later, and the kernel ends the counting of a process there that changes its security context
(``begin_new_exec`` in fs/exec.c)."""

RETRY = 60.0
"""Seconds until a VM that could not be counted is tried again."""

RETRY_HOST = 600.0
"""Seconds until it is tried again whether hardware events can be counted at all."""

PATIENCE = 1.0
"""Seconds after which a caller that waits for a look gets the one before."""

COURTESY = 0.5
"""Seconds that one look waits, all in all, for what is more urgent."""

_TOGETHER = 256
"""Tasks that are read in one go, some more or fewer: in a fraction of a millisecond, so that rates are exact and a VM
that starts does not wait."""

SWITCHED_OFF = WhyNot("switched-off", "they are switched off: [telemetry] hardware_events is false")

NOT_LET = WhyNot(
    "no-capability",
    "the agent lacks CAP_PERFMON: the guide's 'Hardware events' has a drop-in for its unit that gives it, and in a "
    "container --cap-add PERFMON does",
)

STARTING = "starting"
ENDED = "ended"
UNREADABLE = "unreadable"
FAULT = "agent-fault"
"""Words for why a VM is not counted, beside those of :class:`vmqos.telemetry.exceptions.HardwareEventsError`."""


class VmCounts(NamedTuple):
    """What was counted of one VM.

    A named tuple, because each look makes one for each VM: a frozen dataclass takes several times as long to make.

    :ivar since: when it began to be counted, in seconds since 1970.
    :ivar counts: what its tasks did since then, by :data:`vmqos.telemetry.hardware_events.NAMES`.
    :ivar rates: the same a second, between the last two looks; ``None`` after the first.
    :ivar share: of the time for which its tasks ran between the last two looks, the share for which they had the
        processor's counters: 1, unless other programs use them too. Then the counts are estimates. ``None`` where the
        tasks did not run.
    """

    since: float
    counts: tuple[int, ...]
    rates: tuple[float, ...] | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Uncounted:
    """Why a VM is not counted: a word for metrics and programs, and a text for people."""

    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found.

    :ivar monotonic: when it began, in seconds of the monotonic clock; ``None`` before the first.
    :ivar wall: the same in seconds since 1970.
    :ivar unavailable: why no VM is counted; empty where they are.
    :ivar unavailable_code: the word for that.
    :ivar vms: each VM by its UUID; empty where none can be counted.
    """

    monotonic: float | None = None
    wall: float | None = None
    unavailable: str = ""
    unavailable_code: str = ""
    vms: Mapping[str, VmCounts | Uncounted] = field(default_factory=dict)


@dataclass(slots=True)
class _Vm:
    """One run of a VM.

    :ivar tasks: what counts it; ``None`` while that is not so.
    :ivar placed: the tasks that the last pass knew, as they were the last time.
    :ivar read_at: from when on its next growth is, by the monotonic clock.
    :ivar is_owed: whether that makes up for time in which others had the counters.
    :ivar asleep: what was found of it last, where its tasks did not run since the look before.
    :ivar trouble: why it is not counted.
    :ivar due: when to try again.
    """

    process: Process
    since: float = 0.0
    counts: tuple[int, ...] = ()
    tasks: CountedTasks | None = None
    placed: frozenset[int] = frozenset()
    read_at: float = 0.0
    is_owed: bool = False
    asleep: VmCounts | None = None
    trouble: Uncounted | None = None
    due: float = -math.inf

    def close(self) -> None:
        if self.tasks is not None:
            self.tasks.close()
            self.tasks = None


@dataclass(frozen=True, slots=True)
class _Steady:
    """The VMs as the last look left them, for as long as the passes leave them as they are.

    :ivar records: what the passes know of them.
    :ivar batches: those that are counted, some together: each by its UUID, and what reads them.
    :ivar others: those that are not counted.
    """

    records: Mapping[str, VmRecord]
    batches: Sequence[tuple[Sequence[tuple[str, _Vm]], TasksTogether]]
    others: Sequence[VmRecord]


class HardwareCounts:
    """The hardware events of all VMs; :meth:`newest` may be called from any thread.

    :param vms: the VMs by UUID, as the last pass left them.
    :param interval: seconds between two regular looks; 0: only when a client asks.
    :param give_way: waits while something more urgent is to be done, and no longer than it is told to.
    :param most_files: how many files may be open for the counters.
    :param wanted: whether the operator wants them.
    :param events: what to count: cycles, instructions, cache references and cache misses.
    :ivar fresh_for: seconds after which :meth:`newest` has a new look made.
    """

    def __init__(
        self,
        vms: Callable[[], Mapping[str, VmRecord]],
        interval: float,
        give_way: Callable[[float], None] = lambda longest: None,
        *,
        most_files: int = MOST_FILES,
        wanted: bool = True,
        events: Sequence[Event] = HARDWARE,
    ) -> None:
        self.interval = interval
        self.fresh_for = min(max(1.0, 1.5 * interval), 5.0)
        self._vms = vms
        self._give_way = give_way
        self._most_files = most_files
        self._wanted = wanted
        self._events = events
        self._worker = Worker("hardware-events")
        self._counted: dict[str, _Vm] = {}
        self._steady: _Steady | None = None
        self._can_count = False
        self._once = LogOnce(LOG)
        self._asked = False
        self._ended = 0
        self._newest = Look() if wanted else _uncounted(None, None, SWITCHED_OFF)

    @classmethod
    def of(
        cls, conf: cfg.ConfigOpts, vms: Callable[[], Mapping[str, VmRecord]], give_way: Callable[[float], None]
    ) -> HardwareCounts:
        """As the configuration says; half of the files that may be open are left to the other counters."""
        section = conf.telemetry
        most = min(MOST_FILES, descriptors.raise_limit() // 2)
        return cls(vms, section.interval, give_way, most_files=most, wanted=section.hardware_events)

    def start(self) -> None:
        """Count from now on."""
        if self._wanted:
            self._worker.start(self._run)

    def stop(self) -> None:
        """Stop counting, and close every file."""
        self._worker.stop()

    def newest(self) -> Look:
        """The last look; if it is older than :attr:`fresh_for`, a new one is made first.

        If that takes longer than :data:`PATIENCE`, it is the last one all the same.
        """
        with self._worker.condition:
            found = self._newest
            is_old = found.monotonic is None or time.monotonic() - found.monotonic > self.fresh_for
            if self._wanted and is_old and not found.unavailable and not self._worker.ends:
                ended, self._asked = self._ended, True
                self._worker.condition.notify_all()
                self._worker.condition.wait_for(lambda: self._ended != ended or self._worker.ends, PATIENCE)
            return self._newest

    def executing(self) -> Mapping[str, VmCounts]:
        """What the VMs' tasks do now, by UUID: each has rates.

        It waits for no look. VMs that are not counted are left out, and all are if the look is older than three
        intervals: then it says nothing of now.
        """
        with self._worker.condition:
            look = self._newest
        if look.monotonic is None or time.monotonic() - look.monotonic > 3 * self.interval:
            return {}
        return {uuid: vm for uuid, vm in look.vms.items() if isinstance(vm, VmCounts) and vm.rates is not None}

    def _run(self) -> None:
        due = time.monotonic() if self.interval > 0 else math.inf
        try:
            while self._wait_until(due):
                found = self._try_to_look()
                with self._worker.condition:
                    self._newest, self._asked = found, False
                    self._ended += 1
                    self._worker.condition.notify_all()
                pause = RETRY_HOST if found.unavailable else self.interval or math.inf
                due = max(due + pause, time.monotonic()) if due < math.inf else time.monotonic() + pause
        finally:
            self._close_all()

    def _wait_until(self, due: float) -> bool:
        """Wait until a look is due or asked for; whether one is, or else the end has come."""
        condition = self._worker.condition
        with condition:
            while not self._worker.ends and not self._asked:
                left = due - time.monotonic()
                if left <= 0:
                    break
                condition.wait(None if left == math.inf else left)
            return not self._worker.ends

    def _try_to_look(self) -> Look:
        try:
            return self._look()
        except Exception as error:
            # Whatever it is, the next look may be better, and no other thread looks.
            self._once.log(logging.ERROR, "look", "hardware events can't be counted: %s", error, error=error)
            return Look(time.monotonic(), time.time())

    def _look(self) -> Look:
        began, wall = time.monotonic(), time.time()
        if not self._can_count:
            why = hardware_events.why_not(self._events) if hardware_events.may_count() else NOT_LET
            if why.code:
                self._once.log(logging.INFO, "host", "hardware events are not counted: %s", why.text)
                return _uncounted(began, wall, why)
            self._can_count = True
        records, steady = self._vms(), self._steady
        if steady is not None and steady.records is records:
            return Look(began, wall, vms=self._look_again(steady, began + COURTESY))
        self._steady = None
        for uuid in self._counted.keys() - records.keys():
            self._counted.pop(uuid).close()
        # Those that came first have the files first.
        found = self._look_at_each(sorted(records.values(), key=lambda record: record.arrival), began + COURTESY)
        self._steady = self._settle(records, found)
        return Look(began, wall, vms=found)

    def _look_at_each(self, records: Iterable[VmRecord], until: float) -> dict[str, VmCounts | Uncounted]:
        """Look at one VM after the other.

        :param until: when to give way to nothing any more, by the monotonic clock.
        """
        found = {}
        for record in records:
            self._give_way(until - time.monotonic())
            found[record.uuid] = self._look_at(record)
        return found

    def _settle(self, records: Mapping[str, VmRecord], found: Mapping[str, VmCounts | Uncounted]) -> _Steady:
        """Have those that are counted be read together from now on."""
        batches: list[list[tuple[str, _Vm]]] = []
        tasks = _TOGETHER
        for uuid in found:
            vm = self._counted[uuid]
            if vm.tasks is None:
                continue
            if tasks >= _TOGETHER:
                batches.append([])
                tasks = 0
            batches[-1].append((uuid, vm))
            tasks += len(vm.tasks)
        together = [(batch, TasksTogether([vm.tasks for _, vm in batch if vm.tasks is not None])) for batch in batches]
        return _Steady(records, together, [records[uuid] for uuid in found if self._counted[uuid].tasks is None])

    def _look_again(self, steady: _Steady, until: float) -> dict[str, VmCounts | Uncounted]:
        """Look at VMs of which no pass knows anything new.

        :param until: when to give way to nothing any more, by the monotonic clock.
        """
        found: dict[str, VmCounts | Uncounted] = {}
        for batch, together in steady.batches:
            self._give_way(until - time.monotonic())
            now = time.monotonic()
            try:
                grown = together.grown()
            except Exception:
                # Whatever it is, it is one VM's own trouble: that one is found here, and the others are counted.
                self._steady = None
                found |= self._look_at_each([steady.records[uuid] for uuid, _ in batch], until)
            else:
                found |= {uuid: _counted(vm, now, of_vm) for (uuid, vm), of_vm in zip(batch, grown, strict=True)}
        found |= self._look_at_each(steady.others, until)
        if any(self._counted[record.uuid].tasks is not None for record in steady.others):
            self._steady = None
        return found

    def _look_at(self, record: VmRecord) -> VmCounts | Uncounted:
        process, uuid = record.observed.vm.process, record.uuid
        vm = self._counted.get(uuid)
        if vm is None or (vm.process is not process and vm.process != process):
            if vm is not None:
                vm.close()
            vm = self._counted[uuid] = _Vm(process)
        try:
            if vm.tasks is None:
                if vm.trouble is not None and time.monotonic() < vm.due:
                    return vm.trouble
                return self._begin(vm, record)
            self._find_helpers(vm, record)
            now = time.monotonic()
            return _counted(vm, now, vm.tasks.grown())
        except HardwareEventsError as error:
            return self._fail(vm, uuid, Uncounted(error.word, str(error)))
        except ProcessVanished as error:
            return self._fail(vm, uuid, Uncounted(ENDED, str(error)))
        except HypervisorError as error:
            return self._fail(vm, uuid, Uncounted(UNREADABLE, str(error)))
        except Exception as error:
            self._once.log(logging.ERROR, ("fault", uuid), "VM %s: counting it failed: %s", uuid, error, error=error)
            return self._fail(vm, uuid, Uncounted(FAULT, f"counting it failed: {type(error).__name__}: {error}"))

    def _begin(self, vm: _Vm, record: VmRecord) -> VmCounts | Uncounted:
        if _age(vm.process) < YOUNG:
            return Uncounted(STARTING, "its process has only just been started")
        left = self._left()
        with vm_tasks.lister(record.observed.vm) as list_tasks:
            try:
                vm.tasks = CountedTasks(list_tasks, self._events, min(MOST_TASKS, left))
            except TooManyTasks as error:
                if left < MOST_TASKS:
                    raise self._no_files_left() from error
                raise
        # What it did while it was not counted is not known, so its counts begin anew.
        vm.since, vm.counts = time.time(), (0,) * len(self._events)
        vm.read_at, vm.is_owed, vm.asleep, vm.trouble = time.monotonic(), False, None, None
        vm.placed = _placed(record)
        self._once.end(("vm", record.uuid))
        return VmCounts(vm.since, vm.counts)

    def _find_helpers(self, vm: _Vm, record: VmRecord) -> None:
        """Count helper processes and kernel threads that came since; QEMU's new threads are counted already."""
        placed = _placed(record)
        if placed is not vm.placed:
            new, vm.placed = placed - vm.placed, placed
            if new and vm.tasks is not None:
                helpers = _helpers(record.observed.vm)
                if len(helpers) > self._left():
                    raise self._no_files_left()
                vm.tasks.add(helpers)

    def _left(self) -> int:
        """How many tasks more there are files for."""
        taken = sum(len(vm.tasks) for vm in self._counted.values() if vm.tasks is not None)
        return self._most_files // len(self._events) - taken

    def _no_files_left(self) -> NoFilesLeft:
        return NoFilesLeft(cause=f"the files that may be open for counters, {self._most_files}, are taken by other VMs")

    def _fail(self, vm: _Vm, uuid: str, trouble: Uncounted) -> Uncounted:
        vm.close()
        vm.trouble, vm.due = trouble, time.monotonic() + RETRY
        if trouble.word == TasksKeepComing.word:
            vm.due = -math.inf
        elif trouble.word not in (ENDED, FAULT):  # the next pass tells of that one, and this one is told already
            text = "VM %s: its hardware events are not counted: %s"
            self._once.log(logging.WARNING, ("vm", uuid), text, uuid, trouble.text)
        return trouble

    def _close_all(self) -> None:
        while self._counted:
            self._counted.popitem()[1].close()


def _uncounted(monotonic: float | None, wall: float | None, why: WhyNot) -> Look:
    return Look(monotonic, wall, unavailable=why.text, unavailable_code=why.code)


def _counted(vm: _Vm, now: float, grown: Growth) -> VmCounts:
    """What was counted of a VM.

    :param now: when it was read, by the monotonic clock.
    :param grown: how much that is since the last time.
    """
    enabled, running, counts = grown
    seconds = max(now - vm.read_at, 1e-6)
    if enabled:
        # Where others had the counters all the time, the next growth makes up for it, and so is of a longer time.
        vm.is_owed = not running
    if not vm.is_owed:
        vm.read_at = now
    if not enabled:
        if vm.asleep is None:
            vm.asleep = VmCounts(vm.since, vm.counts, tuple(map(float, counts)))
        return vm.asleep
    vm.asleep = None
    vm.counts = tuple(map(add, vm.counts, counts))
    rates = tuple([more / seconds for more in counts]) if running else None
    return VmCounts(vm.since, vm.counts, rates, min(1.0, running / enabled))


def _placed(record: VmRecord) -> frozenset[int]:
    return record.tasks.tasks if record.tasks is not None else frozenset()


def _helpers(vm: VirtualMachine) -> set[int]:
    """The tasks of a VM that are none of QEMU's own threads.

    :raises vmqos.hypervisor.exceptions.HypervisorError: if the VM has ended, or has too many tasks.
    """
    with vm_tasks.lister(vm) as list_tasks:
        # Listed in this order, a thread that is started meanwhile is not taken for a helper.
        return list_tasks() - processes.tasks(vm.process.pid)


def _age(process: Process) -> float:
    """Seconds since a process was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - process.start_time / os.sysconf("SC_CLK_TCK")
