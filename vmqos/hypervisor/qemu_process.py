# SPDX-License-Identifier: Apache-2.0
"""Which process is a VM's QEMU.

A QEMU that its guest has taken over can change its command line, and any user can start a process with another VM's.
What neither can forge is believed first: the PID file, which libvirt writes as root, and the cgroup, which libvirt
makes as root and which has the number of this run of the VM in its name. The command line is asked only where there is
no such cgroup: where cgroups are off, or libvirt is an unprivileged user's.
"""

from __future__ import annotations

import os
import time

from vmqos.hypervisor import cgroup, exceptions, processes, run_files
from vmqos.hypervisor.domain_xml import DomainDescription
from vmqos.hypervisor.model import Process

LONGEST_SEARCH = 1.0
"""Seconds that :func:`by_search` takes at most: to look at a process takes some ten microseconds, but milliseconds
where it has made its command line as long as it may be."""

LONGEST_PID_FILE = 32
"""Bytes of a PID file: a number and a line break (``virPidFileWritePath``)."""


def by_pid_file(domain: DomainDescription, run_dir: str) -> Process | None:
    """The QEMU process of a VM, as libvirt's PID file tells; ``None`` where it leads to no such process.

    libvirt writes ``<run_dir>/<name>.pid`` (``virPidFileBuildPath``) shortly before it starts QEMU. The file may be
    stale, or of another PID namespace, so the process must be in the VM's cgroup, or have the VM's UUID on its command
    line if it is in no VM's.

    :param run_dir: ``/run/libvirt/qemu`` for ``qemu:///system``.
    """
    pid = _read_pid_file(os.path.join(run_dir, f"{domain.name}.pid")) if "/" not in domain.name else None
    if pid is None:
        return None
    try:
        process = processes.of_pid(pid)
        is_it = _is_in_its_cgroup(pid, domain)
        if is_it is None:
            is_it = says_uuid(pid, domain.uuid)
        # The PID may have changed hands between the looks.
        return process if is_it and processes.still(process) else None
    except exceptions.HypervisorError:
        return None


def by_search(domain: DomainDescription) -> Process | None:
    """The QEMU process of a VM, by a look at every process of the host, for where the PID file does not lead to it.

    It has the VM's UUID on its command line. Of several such processes, one in the VM's cgroup is it, else the one that
    was started first; a process in another VM's cgroup is never it, nor one of another user than the VM's.

    :raises vmqos.hypervisor.exceptions.SearchTooLong: if it was not found within :data:`LONGEST_SEARCH`.
    """
    deadline = time.monotonic() + LONGEST_SEARCH
    found: list[tuple[bool, int, Process]] = []
    for pid in processes.all_pids():
        if time.monotonic() > deadline:
            raise exceptions.SearchTooLong(uuid=domain.uuid, seconds=LONGEST_SEARCH)
        try:
            in_its_cgroup = _is_in_its_cgroup(pid, domain)
            if in_its_cgroup is False or (domain.uid is not None and domain.uid not in processes.uids(pid)):
                continue
            process = processes.of_pid(pid)
            if says_uuid(pid, domain.uuid) and processes.still(process):
                found.append((not in_its_cgroup, process.start_time, process))
        except exceptions.HypervisorError:
            continue
    return min(found, key=lambda one: one[:2])[2] if found else None


def _is_in_its_cgroup(pid: int, domain: DomainDescription) -> bool | None:
    """Whether a process is in this VM's cgroup; ``None`` where it is in no VM's."""
    folder = cgroup.vm_cgroup(pid)
    return None if folder is None else cgroup.libvirt_id(folder) == domain.libvirt_id


def says_uuid(pid: int, uuid: str) -> bool:
    """Whether ``-uuid UUID`` is among a process's arguments, as it is among QEMU's (``qemuBuildCommandLine``).

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    :raises vmqos.hypervisor.exceptions.ProcessTooLong: if its command line is too long to tell.
    """
    return processes.says(pid, (b"-uuid", uuid.encode()))


def _read_pid_file(path: str) -> int | None:
    """The PID in a file of libvirt's; ``None`` where there is none."""
    content = (run_files.read(path, LONGEST_PID_FILE) or b"").strip()
    return int(content) if content.isdigit() else None
