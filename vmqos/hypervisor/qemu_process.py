# SPDX-License-Identifier: Apache-2.0
"""Which process is a VM's QEMU."""

from __future__ import annotations

import itertools
import os

from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import Process


def by_pid_file(uuid: str, name: str, run_dir: str) -> Process | None:
    """The QEMU process of a VM, as libvirt's PID file tells; ``None`` where it leads to no such process.

    libvirt writes ``<run_dir>/<name>.pid`` (``virPidFileBuildPath``) shortly before it starts QEMU. The file may be
    stale, or of another PID namespace, so the process must have the VM's UUID on its command line.

    :param run_dir: ``/run/libvirt/qemu`` for ``qemu:///system``.
    """
    pid = _read_pid_file(os.path.join(run_dir, f"{name}.pid")) if "/" not in name else None
    return None if pid is None else _verified(pid, uuid)


def by_command_line(uuid: str) -> Process | None:
    """The QEMU process of a VM, by its UUID on the command line: a look at every process of the host.

    Anybody can start a process with such arguments, but only root puts one into a VM's cgroup: of several processes,
    one that is in such a cgroup is it, else the one that was started first.
    """
    found = [process for pid in processes.all_pids() if (process := _verified(pid, uuid)) is not None]
    return min(found, key=lambda process: (not _in_vm_cgroup(process.pid), process.start_time), default=None)


def _read_pid_file(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            content = file.read(32).strip()
    except OSError:
        return None
    return int(content) if content.isdigit() else None


def _verified(pid: int, uuid: str) -> Process | None:
    """The process of this PID if it is the VM's; what has not its arguments is not looked at any closer."""
    try:
        if not _has_uuid(processes.command_line(pid), uuid):
            return None
        process = processes.of_pid(pid)
        # The PID may have changed hands between the two looks.
        is_it = _has_uuid(processes.command_line(pid), uuid) and processes.still(process)
    except exceptions.HypervisorError:
        return None
    return process if is_it else None


def _in_vm_cgroup(pid: int) -> bool:
    try:
        return cgroup.vm_cgroup(pid) is not None
    except exceptions.HypervisorError:
        return False


def _has_uuid(arguments: list[bytes], uuid: str) -> bool:
    """Whether ``-uuid UUID`` is among QEMU's arguments (``qemuBuildCommandLine``)."""
    return (b"-uuid", uuid.encode()) in itertools.pairwise(arguments)
