# SPDX-License-Identifier: Apache-2.0
"""The simulator's machine in the same process, behind :class:`~vmqos.resctrl.filesystem.Filesystem`: no FUSE, no root.

The groups are real directories besides, in an ordinary folder: for the lock, and for what is asked of ``stat``.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
import uuid as uuids
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from vmqos.hypervisor import exceptions as hypervisor_exceptions
from vmqos.hypervisor import processes
from vmqos.hypervisor.connection import Call
from vmqos.hypervisor.model import NovaMetadata, VirtualMachine
from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem, join
from vmqos.simulator import sysfs
from vmqos.simulator.hardware.profiles import PROFILES
from vmqos.simulator.kernel.tree import Caller, Directory, File
from vmqos.simulator.machine import Machine
from vmqos.simulator.procfs import ProcFs

_CALLER = Caller()
_FILES_ONLY = frozenset({"mon_data"})
"""Directories that are left out of the folder: only their files are read."""


class SimulatedResctrl(Filesystem):
    """resctrl of a simulated machine that has this host's CPUs.

    :param root: an empty folder.
    :param sysfs_cpu: where to write the caches' CPUs.
    :ivar before: called before each read and write, with its path below the root; may raise what the kernel would.
    """

    def __init__(self, root: Path, sysfs_cpu: Path, profile: str = "cascade-lake", options: str = "") -> None:
        super().__init__(str(root))
        chosen = PROFILES[profile]
        chosen = replace(chosen, topology=chosen.topology.fitted(os.sched_getaffinity(0)))
        sysfs.write(str(sysfs_cpu), chosen.topology)
        self.machine = Machine(chosen, ProcFs())
        self.machine.mount(options)
        self.before: Callable[[str], None] = lambda path: None
        self._mirror()

    def read_bytes(self, *relative: str) -> bytes:
        path = join(*relative)
        try:
            self.before(path)
            node = self.machine.find(path)
            if not isinstance(node, File):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            node.check_open(True, False)
            return self.machine.read(node).encode()
        except OSError as error:
            raise self._unreadable(error, self.path(*relative)) from error

    def listdir(self, *relative: str) -> list[str]:
        return [node.name for node in self._directory(*relative)]

    def directories(self, *relative: str) -> list[str]:
        return sorted(node.name for node in self._directory(*relative) if isinstance(node, Directory))

    def write(self, relative: str, text: str) -> None:
        data = text if text.endswith("\n") else f"{text}\n"
        reached = False
        try:
            self.before(relative)
            node = self.machine.find(relative)
            if not isinstance(node, File):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            node.check_open(False, True)
            reached = True
            self.machine.write(node, data.encode(), _CALLER)
        except OSError as error:
            status = self.last_cmd_status() if reached else ""
            raise self._refused(error, "write", self.path(relative), data, status) from error

    def mkdir(self, relative: str) -> None:
        self._change("mkdir", relative, "", lambda: self.machine.mkdir(relative, 0o755, _CALLER))

    def rmdir(self, relative: str) -> None:
        self._change("rmdir", relative, "", lambda: self.machine.rmdir(relative))

    def rename(self, old: str, new: str) -> None:
        self._change("rename", old, self.path(new), lambda: self.machine.rename(old, new))

    def mount_anew(self) -> None:
        """Unmount, which removes all groups, and mount."""
        self.machine.unmount()
        self.machine.mount()
        # Each mount has its own info.
        shutil.rmtree(Path(self.root) / "info")
        self._mirror()

    def _change(self, action: str, relative: str, data: str, change: Callable[[], None]) -> None:
        def changed() -> None:
            self.before(relative)
            change()

        self._change_tree(action, self.path(relative), data, changed)
        self._mirror()

    def _directory(self, *relative: str) -> Directory:
        try:
            node = self.machine.find(join(*relative))
        except OSError as error:
            raise self._unreadable(error, self.path(*relative)) from error
        if not isinstance(node, Directory):
            raise exceptions.Vanished(path=self.path(*relative))
        return node

    def _mirror(self) -> None:
        """Have the folder hold the directories that the machine has."""
        waiting: list[tuple[Directory, Path]] = [(self._directory(), Path(self.root))]
        while waiting:
            directory, folder = waiting.pop()
            names = {node.name: node for node in directory if isinstance(node, Directory)}
            for name in {entry.name for entry in folder.iterdir()} - names.keys():
                shutil.rmtree(folder / name)
            for name in names.keys() - _FILES_ONLY:
                (folder / name).mkdir(exist_ok=True)
                waiting.append((names[name], folder / name))


class PlayedLibvirt:
    """Stands in for the connection to libvirt: each VM is a process of the test's.

    :ivar is_connected: whether libvirt can be reached.
    :ivar hung: the UUIDs of VMs whose descriptions hang until the event is set.
    :ivar broken: what describing a VM raises, by UUID.
    :ivar listing: where it is set to an event, the list of all VMs hangs until that event is set.
    :ivar described: the UUIDs that were asked for, in order.
    """

    def __init__(self) -> None:
        self.vms: dict[str, VirtualMachine] = {}
        self.hung: dict[str, threading.Event] = {}
        self.broken: dict[str, Exception] = {}
        self.listing: threading.Event | None = None
        self.described: list[str] = []
        self.is_connected = True
        self.was_tried = True
        self.under_way: Call | None = None
        self.last_error = ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._number = 0

    def start(self, wait: bool = False, timeout: float = 0.0) -> None:
        pass

    def close(self, timeout: float = 0.0) -> None:
        pass

    @property
    def hostname(self) -> str:
        return "compute"

    def list_running(self) -> dict[str, int]:
        if self.listing is not None:
            self.listing.wait()
        if not self.is_connected:
            raise hypervisor_exceptions.HypervisorUnreachable(uri="test:///", error="it is down")
        return {uuid: vm.libvirt_id for uuid, vm in self.vms.items()}

    def describe(self, uuid: str) -> VirtualMachine | None:
        self.described.append(uuid)
        if uuid in self.hung:
            self.hung[uuid].wait()
        if uuid in self.broken:
            raise self.broken[uuid]
        return self.vms.get(uuid)

    def boot(self, specs: Mapping[str, str] | None) -> str:
        """Start a VM whose flavor has these extra specs; its UUID.

        :param specs: ``None`` where the VM's description does not tell them.
        """
        uuid = str(uuids.uuid4())
        self._number += 1
        self._processes[uuid] = process = subprocess.Popen(["sleep", "1000"])
        metadata = NovaMetadata(f"vm{self._number}", "flavor", "", specs)
        name = f"instance-{self._number:08x}"
        self.vms[uuid] = VirtualMachine(uuid, name, self._number, processes.of_pid(process.pid), None, False, metadata)
        return uuid

    def resize(self, uuid: str, specs: Mapping[str, str]) -> None:
        """Give the VM another flavor, as libvirt tells it of a running VM whose metadata change."""
        vm = self.vms[uuid]
        self.vms[uuid] = replace(vm, metadata=NovaMetadata(vm.name, "another", "", specs))

    def shut_off(self, uuid: str) -> None:
        """End the VM."""
        process = self._processes.pop(uuid)
        process.kill()
        process.wait()
        del self.vms[uuid]

    def end(self) -> None:
        """End all VMs, and let go what hangs."""
        for event in (*self.hung.values(), *([self.listing] if self.listing is not None else [])):
            event.set()
        for process in self._processes.values():
            process.kill()
            process.wait()
