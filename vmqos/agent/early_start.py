# SPDX-License-Identifier: Apache-2.0
"""The promise of a VM that libvirt is starting, in force before the first thread of a vCPU is made.

A thread is born in the group of the thread that makes it. So it suffices to make the VM's group ready, and to move
QEMU's first thread there, before QEMU's program begins. This is no pass: libvirt is not asked, no other VM is looked
at, and what is not simple is left to the pass that libvirt's own event brings about.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vmqos.agent.act import move_tasks
from vmqos.agent.act.move_tasks import TaskGroup
from vmqos.agent.observe import flavor_request
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.starting_vms import StartingVm
from vmqos.agent.steps.start import StartStep
from vmqos.agent.vm_record import VmRecord
from vmqos.daemon.log_once import LogOnce
from vmqos.hypervisor import exceptions as hypervisor_exceptions
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.resctrl import exceptions, topology
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds to wait for resctrl's lock: what comes later than that, the pass that libvirt's event brings about does."""

FORK = 0.05
"""Seconds in which libvirt mostly forks QEMU once the status file is there."""

LONGEST_COURTESY = 0.2
"""Seconds that a pass gives way to starts of VMs."""

_TICKS = 100
"""Clock ticks in a second, as /proc counts start times (``USER_HZ``)."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the tasks of a VM belong that libvirt is starting.

    :ivar uuid: the VM.
    :ivar libvirt_id: libvirt's number of this start of it.
    :ivar group: the group; ``None`` where nothing can be done early.
    """

    uuid: str
    libvirt_id: int | None
    group: TaskGroup | None


class EarlyStart:
    """Acts on what :class:`vmqos.agent.observe.starting_vms.StartWatch` finds, from its thread.

    :param filesystem: resctrl.
    :param step: makes the groups.
    :param leaves_incoming: whether a VM whose memory comes from another host gets its groups early, and is not moved.
    """

    def __init__(self, filesystem: Filesystem, step: StartStep, *, leaves_incoming: bool = False) -> None:
        self._filesystem = filesystem
        self._step = step
        self._leaves_incoming = leaves_incoming
        self._once = LogOnce(LOG)
        self._condition = threading.Condition()
        self._is_at_work = False
        self._expected: dict[str, float] = {}
        """Until when the fork of a VM's QEMU is expected any moment, by file; monotonic seconds."""
        self._targets: dict[str, Target] = {}
        """Where the tasks of each file's VM belong."""

    @property
    def is_at_work(self) -> bool:
        """Whether groups of a VM are being made ready, or its tasks moved: the lock on resctrl is wanted for it."""
        return self._is_at_work

    def begin(self, found: Sequence[StartingVm]) -> set[str]:
        """Make the VMs' groups ready, and move those of their tasks that are there.

        :returns: the files of the VMs for which no more is to be done.
        """
        with self._condition:
            self._is_at_work = True
        try:
            return self._begin(found)
        finally:
            now = time.monotonic()
            with self._condition:
                self._is_at_work = False
                for starting in found:
                    if starting.process is None and self._can_act_on(starting.file):
                        self._expected[starting.file] = now + FORK
                    else:
                        self._expected.pop(starting.file, None)
                self._condition.notify_all()

    def give_way(self, longest: float = LONGEST_COURTESY) -> None:
        """Wait while a VM is about to get its group or its first thread, but not for long; any thread may call this.

        A pass may take as long as libvirt takes from one to the other, and holds the same lock. A sweep of the counters
        holds no lock, but the kernel does one thing at a time there (``rdtgroup_mutex``).

        :param longest: seconds to wait at most.
        """
        if not (self._is_at_work or self._expected) or longest <= 0:
            return
        until = time.monotonic() + longest
        with self._condition:
            while (now := time.monotonic()) < until and (
                self._is_at_work or any(due > now for due in self._expected.values())
            ):
                self._condition.wait(min([until, *(due for due in self._expected.values() if due > now)]) - now)

    def _begin(self, found: Sequence[StartingVm]) -> set[str]:
        for starting in found:
            known, domain = self._targets.get(starting.file), starting.status.domain
            if known is not None and (known.uuid, known.libvirt_id) != (domain.uuid, domain.libvirt_id):
                # It is of an earlier start of that name, and word of its end may have been lost.
                self.end(starting.file)
        begun = [starting for starting in found if starting.file in self._targets]
        fresh = {starting.file: self._record(starting) for starting in found if starting.file not in self._targets}
        wanted = {record.uuid: record for record in fresh.values() if record.wants_something}
        if wanted or begun:
            with self._filesystem.lock(exclusive=True, timeout=PATIENCE):
                for starting in begun:
                    self._move(starting)
                targets = self._step.start(wanted) if wanted else {}
                if not targets and len(wanted) > 1:
                    targets = self._start_each(wanted)
                for starting in found:
                    if starting.file in fresh:
                        domain = starting.status.domain
                        target = Target(domain.uuid, domain.libvirt_id, targets.get(domain.uuid))
                        self._targets[starting.file] = target
                        self._move(starting)
        return {starting.file for starting in found if starting.process or not self._can_act_on(starting.file)}

    def end(self, file: str) -> None:
        """Forget a VM whose file is gone. If no pass has seen it yet, its group is not needed any more."""
        with self._condition:
            self._expected.pop(file, None)
        known = self._targets.pop(file, None)
        if known is not None:
            self._step.starts.end(known.uuid)

    def _can_act_on(self, file: str) -> bool:
        return file in self._targets and self._targets[file].group is not None

    def _start_each(self, wanted: Mapping[str, VmRecord]) -> dict[str, TaskGroup]:
        """Make the VMs' groups by a plan for each, where one plan for all of them does not do."""
        targets = dict[str, TaskGroup]()
        for uuid, record in wanted.items():
            targets |= self._step.start({uuid: record})
        return targets

    def _record(self, starting: StartingVm) -> VmRecord:
        """The VM as the first two steps of a pass would see it, as far as its status file tells."""
        domain, caches = starting.status.domain, self._step.memory.snapshot.topology
        vm = VirtualMachine(
            uuid=domain.uuid,
            name=domain.name,
            libvirt_id=domain.libvirt_id or 0,
            process=starting.process or Process(0, int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)),
            cgroup=None,
            has_cachetune=domain.has_cachetune,
            metadata=domain.metadata,
            metadata_error=domain.metadata_error,
        )
        pinning, every = starting.status.pinning, frozenset().union(*caches.cpus.values())
        everywhere = frozenset().union(*(_cpus(text, every) for text in {*pinning.vcpus, pinning.others}))
        asked = flavor_request.read_all({vm.uuid: ObservedVm(vm, everywhere)}, None, self._once)[vm.uuid]
        wants = asked.wants
        if wants is None or (wants.vcpus is None and wants.l2_ways is None):
            return VmRecord(ObservedVm(vm, everywhere), asked)
        # The ways follow the vCPUs that the flavor names, or each vCPU's core.
        affinities = tuple(
            _cpus(text, every)
            for number, text in enumerate(pinning.vcpus)
            if wants.vcpus is None or number in wants.vcpus
        )
        if not affinities:
            # It has none of the vCPUs yet: it waits for its ways until one is plugged in.
            return VmRecord(ObservedVm(vm, everywhere), replace(asked, wants=None))
        cpus = everywhere if wants.vcpus is None else frozenset().union(*affinities)
        return VmRecord(ObservedVm(vm, cpus), asked, affinities=affinities)

    def _move(self, starting: StartingVm) -> None:
        """Move the tasks that a VM has now, which is QEMU's first thread, unless a pass has seen the VM already."""
        uuid, target = self._targets[starting.file].uuid, self._targets[starting.file].group
        process, known = starting.process, self._step.memory.snapshot.vms.get(uuid)
        if process is None or target is None:
            return
        if known is not None and known.observed.vm.process == process:
            # Otherwise its group would be kept for this start after the VM's end, until libvirt removes the file.
            self._step.starts.end(uuid)
            return
        try:
            with processes.opened(process) as directory:
                outside = processes.cpu_time_of_all(process.pid)
                if not (self._leaves_incoming and starting.status.is_incoming):
                    move_tasks.place(
                        self._filesystem, target, lambda: processes.tasks(process.pid, directory), there=set()
                    )
            self._step.starts.note_process(uuid, process, outside)
        except hypervisor_exceptions.HypervisorError as error:
            LOG.debug("VM %s has ended: %s", uuid, error)
        except exceptions.ResctrlError as error:
            LOG.info("VM %s is not moved before it runs: %s", uuid, error)


def _cpus(text: str, every: frozenset[int]) -> frozenset[int]:
    """The CPUs of one list of a pinning."""
    try:
        return topology.parse_cpu_list(text) & every or every
    except ValueError:
        return every
