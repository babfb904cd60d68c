# SPDX-License-Identifier: Apache-2.0
"""The starts of VMs that have their groups already, and that no pass has seen to run yet."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vmqos.agent.act import move_tasks
from vmqos.agent.act.move_tasks import TaskGroup
from vmqos.agent.act.outside_time import OutsideTime
from vmqos.agent.observe.cache_vcpus import UNNAMED, CacheVcpus
from vmqos.agent.observe.command_lines import CommandLines
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.allocation import Request
from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import Process
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

FORK_PATIENCE = 60.0
"""Seconds that a group waits for a VM whose QEMU is not forked yet: before that, libvirt opens images and devices."""

PROGRAM_PATIENCE = 5.0
"""Seconds that a process has to become QEMU, and say the VM's UUID, once libvirt has forked it; mostly 20 ms pass."""


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
