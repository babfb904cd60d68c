# SPDX-License-Identifier: Apache-2.0
"""Cycles, instructions, and last-level cache references and misses of processes, by ``perf_event_open(2)``.

A process is counted as ``perf stat -p`` does it: all threads that it has, each with those that it starts later, guests
included. Counting a VM's cgroup would take a descriptor for each of the host's CPUs, most of which count nothing; a VM
has fewer threads than a host has CPUs.

The kernel chooses the events of the caches: on Intel's processors they are the L3's, on AMD's those of a core's L2, and
on Arm's those of its L1 (``intel_perfmon_event_map``, ``amd_zen*_perfmon_event_map`` in arch/x86/events;
``armv8_pmuv3_perf_map`` in drivers/perf/arm_pmuv3.c).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vmqos.resctrl import cpuinfo
from vmqos.telemetry import descriptors
from vmqos.telemetry.exceptions import (
    HardwareEventsError,
    HardwareEventsRefused,
    NoFilesLeft,
    TasksKeepComing,
    TooManyTasks,
)
from vmqos.telemetry.perf_event import CountsTogether, Event, GrowingCounts, Growth, TaskCounters

NAMES = ("cycles", "instructions", "cache_references", "cache_misses")
"""What is counted, in the kernel's words (``enum perf_hw_id``)."""

HARDWARE: tuple[Event, Event, Event, Event] = ((0, 0), (0, 1), (0, 2), (0, 3))
"""PERF_TYPE_HARDWARE: the events of :data:`NAMES`."""

MOST_TASKS = 1024
"""Tasks of a VM that may be opened: those that it has when the counting begins. Most have some dozen."""

TRIES = 5
"""How often the counting is begun anew because threads were started meanwhile."""

PARANOID = "/proc/sys/kernel/perf_event_paranoid"
"""Whom the kernel lets count. At 3, which Linux itself does not know and Debian's kernels have as their default, they
ask for CAP_SYS_ADMIN, and CAP_PERFMON will not do; up to 2 it will."""

NO_EVENTS = "no-events"
NOT_PERMITTED = "not-permitted"
REFUSED = "refused"
"""Words for why nothing can be counted: the kernel has nothing to count with, or does not permit it, or there is some
other reason."""


class WhyNot(NamedTuple):
    """Why nothing can be counted: a word for programs, and a text for people; both empty where it can."""

    code: str = ""
    text: str = ""


_NOT_HERE = "this kernel gives no hardware events, as in most virtual machines"
_NOT_PERMITTED = "not permitted: run it as root, or with CAP_PERFMON"
_WHY = {
    errno.ENOENT: _NOT_HERE,
    errno.ENODEV: _NOT_HERE,
    errno.EOPNOTSUPP: _NOT_HERE,
    errno.ENOSYS: "this kernel was built without perf events",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.EBUSY: "another program has taken the counters",
}

_LONGEST_STAT = 4096
"""Bytes of a process's ``stat``, which has some hundred."""

ListTasks = Callable[[], Collection[int]]

_OF_INTEL = re.compile(rb"^vendor_id\s*: GenuineIntel$", re.MULTILINE)


def are_of_the_l3(proc: str = "/proc") -> bool:
    """Whether the events of the caches are those of the L3 here, and so say what more or less of it does to a VM.

    :param proc: where procfs is mounted.
    """
    try:
        return bool(_OF_INTEL.search(cpuinfo.first_cpu(proc)))
    except OSError:
        return False


STATUS = "/proc/self/status"
_LONGEST_STATUS = 4096
"""Bytes of it that are read. The capabilities come after the process's groups (``proc_pid_status`` in fs/proc/array.c),
so for one with hundreds of groups they are not known."""
_CAPABILITIES = 1 << 38 | 1 << 21
"""``CAP_PERFMON`` and ``CAP_SYS_ADMIN``: either lets a process count others."""


def may_count() -> bool:
    """Whether this process has the capability to count others; ``True`` where that is not known.

    A service without it may be forbidden to call ``perf_event_open(2)`` at all, and be killed for a try.
    """
    try:
        with open(STATUS, "rb", buffering=0) as file:
            effective = re.search(rb"^CapEff:\s*([0-9a-f]{1,16})$", file.read(_LONGEST_STATUS), re.MULTILINE)
    except OSError:
        return True
    return effective is None or bool(int(effective[1], 16) & _CAPABILITIES)


def why_not(events: Sequence[Event] = HARDWARE) -> WhyNot:
    """Why nothing can be counted here."""
    try:
        TaskCounters(0, events).close()
    except OSError as error:
        return WhyNot(_code(error), _why(error))
    return WhyNot()


class CountedTasks:
    """Counts some tasks, and the threads that they start, from now on.

    :param list_tasks: lists the tasks; it is called several times, for a thread that is started meanwhile is counted
        once and not twice.
    :param most: how many tasks may be opened.
    :raises vmqos.telemetry.exceptions.HardwareEventsError: if they can't be counted; nothing is left open then.
    :raises Exception: what ``list_tasks`` raises.
    """

    def __init__(self, list_tasks: ListTasks, events: Sequence[Event] = HARDWARE, most: int = MOST_TASKS) -> None:
        self._events = events
        self._most = most
        self._tasks: dict[int, TaskCounters] = {}
        self._growing = GrowingCounts(len(events))
        try:
            for _ in range(TRIES):
                tids = frozenset(list_tasks())
                self.add(tids)
                # Whether a thread that was started meanwhile is counted depends on whether the one that started it was.
                if tids.issuperset(list_tasks()):
                    return
                self.close()
        except BaseException:
            self.close()
            raise
        raise TasksKeepComing(tries=TRIES)

    def __len__(self) -> int:
        """How many tasks are open; each takes a descriptor for each event."""
        return len(self._tasks)

    def add(self, tids: Iterable[int]) -> None:
        """Count these tasks, too. None of them may be a thread that a counted one has started.

        :raises vmqos.telemetry.exceptions.HardwareEventsError: if they can't be counted.
        """
        new = [tid for tid in tids if tid not in self._tasks]
        if len(self._tasks) + len(new) > self._most:
            raise TooManyTasks(count=len(self._tasks) + len(new), most=self._most)
        for tid in new:
            try:
                with contextlib.suppress(ProcessLookupError):
                    self._tasks[tid] = task = TaskCounters(tid, self._events)
                    self._growing.add(task)
            except OSError as error:
                raise _refused(error) from error

    def grown(self) -> Growth:
        """What all of them did since the last call, also those that have ended.

        :raises vmqos.telemetry.exceptions.HardwareEventsError: if the kernel does not tell.
        """
        try:
            return self._growing.grown()
        except OSError as error:
            raise _refused(error) from error

    def close(self) -> None:
        """Stop counting."""
        self._growing = GrowingCounts(len(self._events))
        while self._tasks:
            self._tasks.popitem()[1].close()


class TasksTogether:
    """The tasks of some VMs, which are read in one go as long as no further task of theirs is counted.

    :param of: what counts each VM's; at least one.
    """

    def __init__(self, of: Sequence[CountedTasks]) -> None:
        self._together = CountsTogether([tasks._growing for tasks in of])

    def grown(self) -> Sequence[Growth]:
        """What each VM's tasks did since the last call.

        :raises vmqos.telemetry.exceptions.HardwareEventsError: if the kernel does not tell of some VM's. Then
            :meth:`CountedTasks.grown` tells of the others.
        """
        try:
            return self._together.grown()
        except OSError as error:
            raise _refused(error) from error


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was counted since the last time.

    :ivar known: ``False`` where nothing can be told: no thread was counted for any of that time.
    :ivar share: of the time for which the threads ran, the share for which they had the processor's counters, 0 to 1;
        below 1, the counts are estimates. ``None`` where they did not run.
    :ivar seconds: since the last counts that were known, or since the counting began: these are of so long a time.
        Where tasks sleep after others had the counters, the time goes on: the next counts are of all of it.
    """

    cycles: int
    instructions: int
    references: int
    misses: int
    known: bool
    share: float | None = field(default=None, compare=False)
    seconds: float = field(default=0.0, compare=False)


@dataclass(slots=True)
class _Process:
    """A process that is counted.

    :ivar started: when it was started (:func:`_started`): a later one may have its PID.
    :ivar known_at: when its counts were last known, by the monotonic clock.
    :ivar is_owed: whether its next growth makes up for time since then in which others had the counters.
    """

    started: bytes
    tasks: CountedTasks
    known_at: float
    is_owed: bool = False


class HardwareEvents:
    """Counts processes between two calls of :meth:`read`; for one thread at a time.

    :param events: those of :data:`NAMES`, or what stands in for them.
    :ivar unavailable: why nothing can be counted; empty where it can, as far as is known.
    """

    def __init__(self, events: tuple[Event, Event, Event, Event] = HARDWARE) -> None:
        self._events = events
        self._processes: dict[int, _Process] = {}
        descriptors.raise_limit()
        self.unavailable = why_not(events).text

    def close(self) -> None:
        """Stop counting."""
        while self._processes:
            self._processes.popitem()[1].tasks.close()

    def read(self, pids: Iterable[int]) -> Mapping[int, Counts]:
        """What each process did since the last call, by PID; a process that is gone is left out.

        A process's first call begins to count it, and knows nothing yet.
        """
        if self.unavailable:
            return {}
        found = {}
        wanted = {pid: started for pid in pids if (started := _started(pid))}
        for pid in [pid for pid, known in self._processes.items() if wanted.get(pid) != known.started]:
            self._processes.pop(pid).tasks.close()
        for pid, started in wanted.items():
            try:
                found[pid] = self._read(pid, started)
            except FileNotFoundError:
                continue
            except (TasksKeepComing, TooManyTasks):
                found[pid] = Counts(0, 0, 0, 0, False)
            except HardwareEventsError as error:
                self.unavailable = str(error)
                self.close()
                return {}
        return found

    def _read(self, pid: int, started: bytes) -> Counts:
        counted, now = self._processes.get(pid), time.monotonic()
        if counted is None:
            listed = f"/proc/{pid}/task"
            tasks = CountedTasks(lambda: [int(name) for name in os.listdir(listed)], self._events)
            self._processes[pid] = _Process(started, tasks, now)
            return Counts(0, 0, 0, 0, False)
        try:
            grown = counted.tasks.grown()
        except TasksKeepComing:
            self._processes.pop(pid).tasks.close()
            raise
        cycles, instructions, references, misses = grown.counts
        share = min(1.0, grown.running / grown.enabled) if grown.enabled else None
        if share is not None:
            counted.is_owed = share == 0.0
        if share == 0.0:
            # Others have the counters. The next growth makes up for this time.
            return Counts(0, 0, 0, 0, False, share)
        seconds = now - counted.known_at
        if not counted.is_owed:
            counted.known_at = now
        return Counts(cycles, instructions, references, misses, True, share, seconds)


def _started(pid: int) -> bytes:
    """When the process of a PID was started, in ticks since boot; empty where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # A thread's name may have blanks and brackets (proc_pid_stat(5)).
            return file.read(_LONGEST_STAT).rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        return b""


def _refused(error: OSError) -> HardwareEventsError:
    if error.errno == errno.ECHILD:
        return TasksKeepComing(tries=1)
    if error.errno == errno.EMFILE:
        return NoFilesLeft(cause=_why(error))
    return HardwareEventsRefused(cause=_why(error))


def _code(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return NOT_PERMITTED
    nothing = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSYS)
    return NO_EVENTS if error.errno in nothing else REFUSED


def _why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return _why_not_permitted()
    return _WHY.get(error.errno or 0, f"perf_event_open fails: {error.strerror}")


def _why_not_permitted() -> str:
    try:
        with open(PARANOID, "rb", buffering=0) as file:
            level = int(file.read(16))
    except (OSError, ValueError):
        return _NOT_PERMITTED
    if level <= 2:
        return _NOT_PERMITTED
    return f"not permitted: with sysctl kernel.perf_event_paranoid={level}, CAP_PERFMON will not do; set it to 2"
