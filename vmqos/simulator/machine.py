# SPDX-License-Identifier: Apache-2.0
"""A whole simulated machine: hardware that lasts and, while mounted, resctrl. No FUSE and no I/O of its own."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable

from vmqos.simulator.files import group_files, groups, info, pseudo_lock
from vmqos.simulator.files.state import Mounted
from vmqos.simulator.hardware import options
from vmqos.simulator.hardware.lasting import Hardware
from vmqos.simulator.hardware.profiles import Profile
from vmqos.simulator.hardware.tasks import Processes
from vmqos.simulator.kernel.numbers import refusal
from vmqos.simulator.kernel.tree import Caller, Directory, File, Node, find

_ROOT = Caller()


class Machine:
    """One machine.

    Every method takes :attr:`lock`, so that several threads may call them.

    :param processes: where the machine's tasks are looked up.
    :param clock: a monotonic clock in seconds.
    """

    def __init__(self, profile: Profile, processes: Processes, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self.hardware = Hardware(profile, processes, clock)
        self._mounted: Mounted | None = None

    @property
    def is_mounted(self) -> bool:
        """Whether resctrl is mounted."""
        return self._mounted is not None

    @property
    def mounted(self) -> Mounted:
        """What is mounted.

        :raises OSError: ``ENODEV`` if nothing is.
        """
        if self._mounted is None:
            raise refusal(errno.ENODEV)
        return self._mounted

    def mount(self, text: str = "") -> Directory:
        """Mount resctrl.

        :param text: mount options joined by commas.
        :return: the root directory.
        :raises OSError: ``EINVAL`` for options that the machine refuses, ``EBUSY`` if it is mounted.
        """
        with self.lock:
            parsed = options.parse(text, self.hardware.profile)
            if self._mounted is not None:
                raise refusal(errno.EBUSY)
            options.check_cdp(parsed, self.hardware.profile)
            root = Directory("", 0o555, _ROOT)
            mounted = Mounted(self.hardware, parsed, root)
            for resource in mounted.cdp_resources():
                resource.set_cdp(True)
            group_files.fill(mounted, mounted.default, _ROOT)
            root.add(info.build(mounted))
            if self.hardware.profile.monitoring:
                root.add(Directory("mon_groups", 0o555, _ROOT, mounted.default))
            self._mounted = mounted
            return root

    def unmount(self) -> None:
        """Unmount: every group goes, every class gets everything, every task is back in the default group."""
        with self.lock:
            mounted = self.mounted
            hardware, now = self.hardware, self.hardware.clock()
            hardware.check_limbo()
            for resource in mounted.cdp_resources():
                resource.set_cdp(False)
            for resource in hardware.resources:
                resource.reset()
            hardware.members.move_all(lambda closid, rmid: True, 0, 0)
            for group in mounted.groups:
                pseudo_lock.release(group)
                for child in group.children:
                    hardware.rmids.give_back(child.rmid, now)
                hardware.rmids.give_back(group.rmid, now)
            for node in list(mounted.root):
                mounted.root.remove(node.name)
            self._mounted = None

    def find(self, path: str) -> Node:
        """The node at a path below the root.

        :raises OSError: ``ENOENT`` or ``ENOTDIR``.
        """
        with self.lock:
            return find(self.mounted.root, path)

    def mkdir(self, path: str, permissions: int, caller: Caller) -> None:
        """Make a group.

        :raises OSError: as the kernel refuses it.
        """
        with self.lock:
            folder, _, name = path.rpartition("/")
            groups.make(self.mounted, self._directory(folder), name, permissions, caller)

    def rmdir(self, path: str) -> None:
        """Remove a group.

        :raises OSError: as the kernel refuses it.
        """
        with self.lock:
            groups.remove(self.mounted, self._directory(path))

    def rename(self, old: str, new: str) -> None:
        """Rename or move a monitoring group.

        :raises OSError: as the kernel refuses it.
        """
        with self.lock:
            folder, _, name = new.rpartition("/")
            target = self._directory(folder)
            groups.rename(self.mounted, self.find(old), target, name)

    def read(self, file: File) -> str:
        """The content of a file.

        :raises OSError: as the kernel refuses it.
        """
        with self.lock:
            return file.read()

    def write(self, file: File, data: bytes, caller: Caller) -> int:
        """One write to a file.

        :raises OSError: as the kernel refuses it.
        """
        with self.lock:
            return file.write(data, caller)

    def read_register(self, cpu: int, register: int) -> int:
        """What is in a model-specific register, as ``/dev/cpu/N/msr`` shows it.

        :raises OSError: ``EIO`` if the CPU has no such register.
        """
        with self.lock:
            return self.hardware.registers.read(cpu, register)

    def set_online(self, cpu: int, online: bool) -> None:
        """Switch a CPU of the machine on or off, as ``/sys/devices/system/cpu/cpuN/online`` does."""
        with self.lock:
            caches, counted = set(self.hardware.l3_online), set(self.hardware.counted_online)
            self.hardware.set_online(cpu, online)
            if self._mounted is None:
                return
            if online:
                self._mounted.default.cpus.add(cpu)
            for group in self._mounted.every_group():
                if not online:
                    group.cpus.discard(cpu)
                if group.mon_data is None:
                    continue
                for domain in sorted(counted ^ set(self.hardware.counted_online)):
                    if online:
                        group_files.add_counters(self._mounted, group, domain)
                    else:
                        group_files.remove_counters(self._mounted, group, domain)
                for package in sorted(caches ^ set(self.hardware.l3_online)):
                    if online:
                        group_files.add_package(self._mounted, group, package)
                    elif group.mon_data.get(group_files.package_folder(package)) is not None:
                        group.mon_data.remove(group_files.package_folder(package))

    def _directory(self, path: str) -> Directory:
        node = self.find(path)
        if not isinstance(node, Directory):
            raise refusal(errno.ENOTDIR)
        return node
