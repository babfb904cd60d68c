# SPDX-License-Identifier: Apache-2.0
"""The VMs that libvirt is starting: word of them before libvirt itself says so, and which no pass has seen yet.

libvirt sends its event when the guest runs already, and answers no question about a VM while it starts it. But its
status file of the VM (:mod:`vmqos.hypervisor.run_files`) is there in time, and the kernel tells of each change.
What is missed here costs nothing but time: libvirt's event comes anyway.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmqos.agent.act import move_tasks
from vmqos.agent.act.move_tasks import TaskGroup
from vmqos.agent.act.outside_time import OutsideTime
from vmqos.agent.observe.cache_vcpus import UNNAMED, CacheVcpus
from vmqos.agent.observe.command_lines import CommandLines
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.allocation import Request
from vmqos.daemon.directory_watch import DirectoryWatch, EventsLost, FileEvent
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.hypervisor import cgroup, exceptions, processes, run_files
from vmqos.hypervisor.model import Process
from vmqos.hypervisor.run_files import DomainStatus
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

RETRY = 5.0
"""Seconds until a directory that can't be watched is tried again: libvirt makes it when it is started first."""

FORK_PATIENCE = 60.0
"""Seconds that a group waits for a VM whose QEMU is not forked yet: before that, libvirt opens images and devices."""

PROGRAM_PATIENCE = 5.0
"""Seconds that a process has to become QEMU, and say the VM's UUID, once libvirt has forked it; mostly 20 ms pass."""

_SUFFIX = ".xml"


@dataclass(frozen=True, slots=True)
class StartingVm:
    """A VM that libvirt is starting.

    :ivar file: the name of its status file, without what it ends with.
    :ivar status: what the file says.
    :ivar process: its QEMU process, which may not be QEMU's program yet; ``None`` before it is forked.
    """

    file: str
    status: DomainStatus
    process: Process | None


class StartWatch:
    """Watches libvirt's run directory from a thread of its own.

    :param run_dir: libvirt's run directory.
    :param on_start: called with the VMs that libvirt is starting, again when there is more to know of one; returns the
        files of those of which no more need be known.
    :param on_end: called with the file of a VM that has ended, or whose start has failed.
    :ivar is_watching: whether the directory is watched now; ``None`` where that was not asked for.
    :ivar last_error: why it can't be watched; empty where it is, and before the first try.
    """

    def __init__(
        self, run_dir: str, on_start: Callable[[Sequence[StartingVm]], set[str]], on_end: Callable[[str], None]
    ) -> None:
        self._run_dir = run_dir
        self._on_start = on_start
        self._on_end = on_end
        self.is_watching: bool | None = None
        self.last_error = ""
        self._worker = Worker("libvirt-status")
        self._watch: DirectoryWatch | None = None
        self._settled: set[str] = set()
        """The files that need not be read again until their VM has ended: libvirt writes one at each change."""
        self._begun: set[str] = set()
        """The files of the starts that were told of, and of whose ends were not."""
        self._once = LogOnce(LOG)

    def start(self) -> None:
        """Begin to watch; a directory that is not there yet is no error."""
        self.is_watching = False
        self._worker.start(self._run)

    def close(self) -> None:
        """End the thread."""
        with self._worker.condition:
            self._worker.ends = True
            if self._watch is not None:
                self._watch.wake()
        self._worker.stop()

    def _run(self) -> None:
        while not self._worker.ends:
            try:
                self._follow()
            except EventsLost:
                self._once.log(logging.INFO, "lost", "not all is known of %s: it is watched anew", self._run_dir)
            except OSError as error:
                self._wait_after(logging.INFO, error.strerror or str(error))
            except Exception as error:
                # Whatever it is, the next VM's start must be watched all the same.
                self._wait_after(logging.ERROR, str(error), error)

    def _wait_after(self, level: int, why: str, error: Exception | None = None) -> None:
        """Tell why the directory can't be watched, and wait until it is tried again."""
        self.last_error = f"{self._run_dir} can't be watched: {why}"
        self._once.log(level, "watch", "%s", self.last_error, error=error)
        with self._worker.condition:
            self._worker.condition.wait_for(lambda: self._worker.ends, RETRY)

    def _follow(self) -> None:
        watch = DirectoryWatch(self._run_dir)
        try:
            # The VMs whose files are there already are libvirt's to tell of.
            self._settled = {name.removesuffix(_SUFFIX) for name in os.listdir(self._run_dir)}
            # Where events were lost, nobody has told of these ends.
            for file in self._begun - self._settled:
                self._end(file)
            self._once.end("watch")
            self.is_watching, self.last_error = True, ""
            with self._worker.condition:
                self._watch = watch
            while not self._worker.ends:
                self._take(watch.wait())
        finally:
            self.is_watching = False
            with self._worker.condition:
                self._watch = None
            watch.close()

    def _take(self, events: Sequence[FileEvent]) -> None:
        """Act on what happened to files, all at once: where many VMs start, one plan does for all of them."""
        changed = dict[str, None]()
        for event in events:
            file = event.name.removesuffix(_SUFFIX)
            if file == event.name:
                continue
            if event.is_gone:
                changed.pop(file, None)
                self._settled.discard(file)
                self._end(file)
            elif file not in self._settled:
                changed[file] = None
        found = [starting for starting in map(self._read, changed) if starting is not None]
        if found:
            self._begun.update(starting.file for starting in found)
            self._guarded(lambda: self._settled.update(self._on_start(found)))

    def _end(self, file: str) -> None:
        self._begun.discard(file)
        self._guarded(functools.partial(self._on_end, file))

    def _read(self, file: str) -> StartingVm | None:
        """The VM of a status file, if libvirt is starting it."""
        status = run_files.read_status(os.path.join(self._run_dir, file + _SUFFIX))
        if status is None:
            return None
        if not status.is_starting:
            self._settled.add(file)
            return None
        try:
            return StartingVm(file, status, processes.of_pid(status.pid) if status.pid else None)
        except exceptions.HypervisorError:
            return None

    def _guarded(self, act: Callable[[], None]) -> None:
        """Act, and log what goes wrong: the next VM's start must be watched all the same."""
        try:
            act()
            self._once.end("act")
        except ResctrlError as error:
            # Such as a lock that another program holds: the next pass does what is left.
            self._once.log(logging.WARNING, "act", "a VM's start is not acted on early: %s", error)
        except Exception as error:
            self._once.log(logging.ERROR, "act", "a VM's start is not acted on early: %s", error, error=error)


@dataclass(frozen=True, slots=True)
class Start:
    """A VM that libvirt is starting and that no pass has seen yet. Its group is there.

    :ivar request: what the planner was asked for.
    :ivar since: when the group was made, or the process was noted; monotonic seconds.
    :ivar process: its QEMU process; ``None`` before it is forked.
    :ivar outside: nanoseconds of CPU that the process has used outside of the group.
    """

    request: Request
    since: float
    process: Process | None = None
    outside: int = 0


class Starts:
    """Remembers the starts; :meth:`under_way` is for passes, which hold the lock, the other methods for any thread.

    :param filesystem: resctrl.
    """

    def __init__(self, filesystem: Filesystem) -> None:
        self._filesystem = filesystem
        self._guard = threading.Lock()
        self._starts: dict[str, Start] = {}
        self._command_lines = CommandLines()

    def begin(self, requests: Mapping[str, Request]) -> None:
        """Note that VMs have got their groups.

        :param requests: what the planner was asked for each, by UUID.
        """
        with self._guard:
            self._starts |= {uuid: Start(request, time.monotonic()) for uuid, request in requests.items()}

    def note_process(self, uuid: str, process: Process, outside: int) -> None:
        """Note which process is a VM's QEMU; it is in the VM's group now.

        :param outside: nanoseconds of CPU that it has used before.
        """
        with self._guard:
            if uuid in self._starts:
                now = time.monotonic()
                self._starts[uuid] = replace(self._starts[uuid], since=now, process=process, outside=outside)

    def end(self, uuid: str) -> None:
        """Note that libvirt starts a VM no more: if it was not seen to run, its group is not needed."""
        with self._guard:
            self._starts.pop(uuid, None)

    def under_way(
        self, vms: Mapping[str, ObservedVm], limits: Mapping[str, CacheVcpus]
    ) -> tuple[dict[str, Request], dict[str, OutsideTime]]:
        """What the planner was asked for VMs whose groups are still kept; forgets those that run, or have ended.

        :param vms: the VMs that are seen to run, by UUID.
        :param limits: the vCPUs that get the ways, by UUID, for VMs whose flavors name some. Before QEMU makes these
            vCPUs, no thread has the name of one: for a moment, such a VM's group is kept although the VM is seen.
        :returns: these requests by UUID, and the time outside of their groups of the VMs that are seen to run.
        """
        if not self._starts:
            return {}, {}
        now, kept, outside = time.monotonic(), dict[str, Request](), dict[str, OutsideTime]()
        self._command_lines.begin()
        with self._guard:
            for uuid, start in list(self._starts.items()):
                seen = vms[uuid].vm.process if uuid in vms else None
                if seen is not None and self._is_of(seen, start):
                    if start.process is not None:
                        outside[uuid] = OutsideTime(seen, start.outside)
                    is_nameless = uuid in limits and limits[uuid].problem == UNNAMED
                    if is_nameless and now < start.since + PROGRAM_PATIENCE:
                        kept[uuid] = start.request
                    else:
                        del self._starts[uuid]
                elif not self._is_under_way(uuid, start, now):
                    del self._starts[uuid]
                elif uuid not in vms:
                    kept[uuid] = start.request
        return kept, outside

    @staticmethod
    def _is_of(seen: Process, start: Start) -> bool:
        """Whether a process that a VM is seen to run as is this start's, and not that of the VM's run before.

        Where the host is busy, a pass may see a VM run before its process is noted. A VM is not started while it runs,
        so a process that lives is of the last start.
        """
        if start.process is not None:
            return seen == start.process
        with contextlib.suppress(exceptions.HypervisorError):
            return processes.still(seen)
        return False

    def _is_under_way(self, uuid: str, start: Start, now: float) -> bool:
        """Whether libvirt starts a VM still; a process that has not become its QEMU in time is given back.

        :param now: monotonic seconds.
        """
        if start.process is None:
            return now < start.since + FORK_PATIENCE
        try:
            if not processes.still(start.process):
                return False
        except exceptions.HypervisorError as error:
            LOG.debug("whether process %d lives can't be told now: %s", start.process.pid, error)
            return True
        pid = start.process.pid
        with contextlib.suppress(exceptions.HypervisorError):
            if now < start.since + PROGRAM_PATIENCE or cgroup.vm_cgroup(pid) is not None:
                return True
            # Only of a process that libvirt gave no cgroup, and it may not let itself be read now.
            if self._command_lines.say(start.process, b"-uuid", uuid.encode()) is not False:
                return True
            LOG.warning("process %d has not become the QEMU of VM %s: it goes back to the default group", pid, uuid)
            try:
                move_tasks.place(self._filesystem, TaskGroup(""), lambda: processes.tasks(pid))
            except ResctrlError as error:
                LOG.error("tasks of process %d can't be moved back to the default group: %s", pid, error)
        return False
