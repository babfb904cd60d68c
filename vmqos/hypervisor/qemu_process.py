# SPDX-License-Identifier: Apache-2.0
"""Which process is a VM's QEMU."""

from __future__ import annotations

import itertools
import os

from vmqos.hypervisor import cgroup, exceptions, processes
from vmqos.hypervisor.model import Process


def find(uuid: str, name: str, run_dir: str) -> Process | None:
    """The QEMU process of a VM; ``None`` where it has none, or none yet.

    libvirt writes its PID to ``<run_dir>/<name>.pid`` (``virPidFileBuildPath``). The file may be stale, or of another
    PID namespace, so the process must have the VM's UUID on its command line; where it has not, /proc is searched.

    :param run_dir: ``/run/libvirt/qemu`` for ``qemu:///system``.
    """
    pid = _read_pid_file(os.path.join(run_dir, f"{name}.pid")) if "/" not in name else None
    if pid is not None:
        process = _verified(pid, uuid)
        if process is not None:
            return process
    return _search(uuid)


def _read_pid_file(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            content = file.read(32).strip()
    except OSError:
        return None
    return int(content) if content.isdigit() else None


def _verified(pid: int, uuid: str) -> Process | None:
    """The process of this PID if it is the VM's; the start time, read first, tells whether the PID changed hands."""
    try:
        process = processes.of_pid(pid)
        is_it = _has_uuid(processes.command_line(pid), uuid) and processes.still(process)
    except exceptions.HypervisorError:
        return None
    return process if is_it else None


def _search(uuid: str) -> Process | None:
    """Of several processes that claim the UUID, the one in a VM's cgroup is it: those are root's to give."""
    found = [process for pid in processes.all_pids() if (process := _verified(pid, uuid)) is not None]
    return min(found, key=lambda process: (not _in_vm_cgroup(process.pid), process.start_time), default=None)


def _in_vm_cgroup(pid: int) -> bool:
    try:
        return cgroup.vm_cgroup(pid) is not None
    except exceptions.HypervisorError:
        return False


def _has_uuid(arguments: list[bytes], uuid: str) -> bool:
    """Whether ``-uuid UUID`` is among QEMU's arguments (``qemuBuildCommandLine``)."""
    return (b"-uuid", uuid.encode()) in itertools.pairwise(arguments)
