# SPDX-License-Identifier: Apache-2.0
"""The simulator's machine in this process, as the agent sees it, as other programs do, and as the judge does."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.trouble.clock import Clock
from tests.campaign.trouble.killing import Killed
from tests.campaign.trouble.seen import Cache, Seen
from tests.campaign.trouble.simulated import SimulatedHardware
from tests.unit.agent.machine import SimulatedResctrl
from vmqos.resctrl import exceptions, lock, mount
from vmqos.resctrl.filesystem import Filesystem
from vmqos.simulator import sysfs as sysfs_files
from vmqos.simulator.kernel.cpus import format_list
from vmqos.simulator.machine import Machine

Before = Callable[[str, str], None]
"""Called before an operation of the agent's, with its name and path; may raise what the kernel would."""
After = Callable[[str, str, str], None]
"""Called after an operation of the agent's that may have changed something, with what was written besides."""


@dataclass
class TroubledMachine:
    """A machine, its resctrl, and what goes wrong there.

    :ivar before: see :data:`Before`.
    :ivar after: see :data:`After`.
    """

    folder: Path
    profile: str
    options: str
    clock: Clock
    before: Before = lambda operation, path: None
    after: After = lambda operation, path, data: None
    outside: SimulatedResctrl = field(init=False)
    """resctrl as other programs see it."""

    def __post_init__(self) -> None:
        self.root, self.sysfs = self.folder / "resctrl", self.folder / "cpu"
        self.root.mkdir()
        self.outside = SimulatedResctrl(self.root, self.sysfs, self.profile, self.options)
        self.machine.hardware.clock = self.clock.monotonic
        self._tell_online()

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.outside.machine

    @property
    def hardware(self) -> SimulatedHardware:
        """The machine as the judge sees it."""
        return SimulatedHardware(self.machine)

    def find(self, path: str | None = None, *, options: object = (), writable: bool = True) -> mount.Mount:
        """What :func:`vmqos.resctrl.mount.find` says: the folder itself is no mount point."""
        if not self.machine.is_mounted:
            raise exceptions.NotMounted(path=str(self.root), mend="mount it", command="mount")
        return mount.Mount(str(self.root), frozenset(), read_only=False, simulated=True)

    def unmount(self) -> None:
        """Unmount resctrl: all groups are gone."""
        self.machine.unmount()
        for entry in self.root.iterdir():
            shutil.rmtree(entry)

    def mount(self) -> None:
        """Mount it again."""
        self.machine.mount(self.options)
        self.outside._mirror()

    def switch(self, cpu: int, online: bool) -> None:
        """Switch a CPU of the machine on or off, and its caches with it. The host's own stays as it is."""
        if online:
            sysfs_files.write(str(self.sysfs), self.machine.hardware.profile.topology)
        self.machine.set_online(cpu, online)
        for gone in self.cpus - self.machine.hardware.online:
            shutil.rmtree(self.sysfs / f"cpu{gone}" / "cache", ignore_errors=True)
        self._tell_online()
        if self.machine.is_mounted:
            self.outside._mirror()

    @property
    def cpus(self) -> frozenset[int]:
        """All CPUs, on or off."""
        return self.machine.hardware.profile.topology.cpus

    @property
    def online(self) -> frozenset[int]:
        """The CPUs that are on."""
        return frozenset(self.machine.hardware.online)

    def reach(self, cpus: frozenset[int]) -> set[Cache]:
        """The L3s that tasks on these CPUs fill."""
        return self.hardware.reach(cpus)

    def groups(self) -> dict[str, Seen]:
        """All control groups by name; none while resctrl is not mounted."""
        return self.hardware.groups()

    def group_of(self, tid: int) -> str:
        """The name of the control group of a task; empty for the default group."""
        return self.hardware.group_of(tid)

    def _tell_online(self) -> None:
        (self.sysfs / "online").write_text(format_list(self.machine.hardware.online) + "\n")


class AgentsResctrl(SimulatedResctrl):
    """resctrl as one run of the agent sees it.

    :param troubled: the machine.
    :ivar is_dead: whether the agent was killed: it changes nothing any more, whatever its code still tries.
    """

    def __init__(self, troubled: TroubledMachine) -> None:
        Filesystem.__init__(self, str(troubled.root))
        self.machine = troubled.machine
        self.before = self._before
        self.is_dead = False
        self._troubled = troubled
        self._doing = ""

    def read_bytes(self, *relative: str) -> bytes:
        with self._as("read"):
            return super().read_bytes(*relative)

    def write(self, relative: str, text: str) -> None:
        with self._as("write", relative, text):
            super().write(relative, text)

    def mkdir(self, relative: str) -> None:
        with self._as("mkdir", relative):
            super().mkdir(relative)

    def rmdir(self, relative: str) -> None:
        with self._as("rmdir", relative):
            super().rmdir(relative)

    def rename(self, old: str, new: str) -> None:
        with self._as("rename", old, new):
            super().rename(old, new)

    def close(self) -> None:
        """Close what a dead agent has open, as the kernel does when a process ends: the lock is free then."""
        self.is_dead = True
        spared = KEPT_OPEN | _descriptors_of_waiting_threads()
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}") == self.root and int(name) not in spared:
                    os.close(int(name))

    @contextmanager
    def _as(self, operation: str, path: str = "", data: str = "") -> Iterator[None]:
        doing, self._doing = self._doing, operation
        try:
            yield
        finally:
            self._doing = doing
            if operation != "read" and not self.is_dead:
                self._troubled.after(operation, path, data)

    def _before(self, path: str) -> None:
        if self.is_dead:
            raise Killed("it is dead already")
        self._troubled.before(self._doing, path)


KEPT_OPEN: set[int] = set()
"""Descriptors of resctrl's root that other programs have open, and no agent."""


def _descriptors_of_waiting_threads() -> set[int]:
    """The descriptors of threads that wait for the lock, this agent's and those of agents before it.

    Each gives its descriptor back by itself once it has the lock. If it were closed here, the number could be the next
    agent's by the time at which the thread closes it.
    """
    found = set[int]()
    for thread in threading.enumerate():
        if not isinstance(thread, lock._Waiter):
            continue
        if thread._done.is_set():
            thread.join()
        elif thread.leave():
            found.add(thread.descriptor)
    return found


ERRORS = (errno.ENOSPC, errno.EBUSY, errno.ENOMEM, errno.EINVAL)
"""What a write may fail with for no fault of the agent's."""
