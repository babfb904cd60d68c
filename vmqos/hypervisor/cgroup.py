# SPDX-License-Identifier: Apache-2.0
"""A VM's own cgroup, and the processes in it: QEMU, and helpers such as swtpm, virtiofsd or passt.

libvirt gives each VM a cgroup (``virCgroupNewMachine``) and puts QEMU's threads into folders below it (``emulator``,
``vcpu0``, ``iothread1``), on a host with systemd with another one, ``libvirt``, between. QEMU of an unprivileged user,
and any where cgroups are off, stays in the cgroup that it was started in, which is not the VM's.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from vmqos.hypervisor import exceptions, processes

_OF_A_VM = re.compile(r"machine-qemu\\x2d[^/]+\.scope|qemu-[^/]+\.libvirt-qemu")
"""The folder of a VM: with systemd (``virSystemdMakeScopeName``), and without (``virCgroupNewPartition``)."""

_NO_ANSWER = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
"""A cgroup that is gone, one that went while its file was open, and the processes of a threaded one."""


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """One mounted cgroup hierarchy.

    :ivar path: where it is mounted.
    :ivar root: the cgroup that is seen there; ``/`` unless a part of the hierarchy was bind-mounted.
    :ivar controllers: its controllers, and ``name=...``, of version 1; empty for version 2.
    """

    path: str
    root: str
    controllers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Membership:
    """A process's cgroup in one hierarchy (a line of ``/proc/<pid>/cgroup``).

    :ivar controllers: as in :class:`CgroupMount`.
    :ivar path: the cgroup, from the hierarchy's root.
    """

    controllers: frozenset[str]
    path: str


def vm_cgroup(pid: int) -> str | None:
    """The directory of the VM's cgroup that the process is in; ``None`` for a process in no VM's cgroup.

    Of several hierarchies the answer is the same for all processes of a VM.

    :raises vmqos.hypervisor.exceptions.ProcessVanished: if there is no such process.
    """
    memberships = parse_memberships(processes.read(pid, "cgroup").decode(errors="surrogateescape"))
    candidates = own_folders(memberships)
    if not candidates:
        return None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = parse_mounts(file)
    for candidate in candidates:
        for mount in mounts:
            directory = below(mount, candidate)
            if directory is not None and os.path.isdir(directory):
                return directory
    return None


def processes_in(cgroup: str) -> set[int]:
    """The PIDs of all processes in a cgroup and in those below it; empty where it is gone.

    :param cgroup: its directory, as :func:`vm_cgroup` gives it.
    :raises vmqos.hypervisor.exceptions.CgroupUnreadable: if the kernel does not let this user read it.
    """
    found, waiting = set[int](), [cgroup]
    while waiting:
        folder = waiting.pop()
        content = _read(f"{folder}/cgroup.procs")
        if content is None:
            continue
        found.update(map(int, content.split()))
        # A threaded domain's cgroup.procs lists the processes of all its threaded children, which have no readable one
        # of their own (Documentation/admin-guide/cgroup-v2.rst, "Threads").
        if not _is_leaf(folder) and _read(f"{folder}/cgroup.type") != b"domain threaded\n":
            waiting += _children(folder)
    # The kernel shows processes of other PID namespaces as 0.
    return found - {0}


def parse_memberships(text: str) -> list[Membership]:
    """Read ``/proc/<pid>/cgroup`` (cgroups(7))."""
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.append(Membership(frozenset(controllers.split(",")) - {""}, path))
    return found


def parse_mounts(lines: Iterable[str]) -> list[CgroupMount]:
    """The cgroup hierarchies among the lines of ``/proc/<pid>/mountinfo`` (proc(5))."""
    found = []
    for line in lines:
        mount, _, file_system = line.rstrip("\n").partition(" - ")
        kind, _, options = file_system.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, path = (_unescape(field) for field in mount.split(" ")[3:5])
            controllers = frozenset(options.split(",")) - {"rw", "ro"} if kind == "cgroup" else frozenset[str]()
            found.append(CgroupMount(path, root, controllers))
    return found


def own_folders(memberships: Iterable[Membership]) -> list[Membership]:
    """The VM's folder in each hierarchy that has one, the most telling first.

    That is one where libvirt made a folder for each kind of thread: helper processes are put into ``emulator`` there,
    and nowhere else (``qemuSetupCgroupForExtDevices``; of version 1 in cpu, cpuacct and cpuset). Version 2 comes first
    because it lists all processes in one file.
    """
    found = [(membership, own) for membership in memberships if (own := own_folder(membership.path)) is not None]
    found.sort(key=lambda pair: (pair[0].path == pair[1], sorted(pair[0].controllers)))
    return [Membership(membership.controllers, own) for membership, own in found]


def own_folder(path: str) -> str | None:
    """The part of a cgroup's path that leads to a VM's folder; ``None`` where it leads through none."""
    parts = path.split("/")
    for last in range(len(parts) - 1, 0, -1):
        if _OF_A_VM.fullmatch(parts[last]):
            return "/".join(parts[: last + 1])
    return None


def below(mount: CgroupMount, membership: Membership) -> str | None:
    """Where the mount shows the cgroup; ``None`` where it is of another hierarchy, or outside of what is mounted."""
    if membership.controllers:
        if not membership.controllers <= mount.controllers:
            return None
    elif mount.controllers:
        return None
    root = mount.root.rstrip("/")
    if not membership.path.startswith(f"{root}/"):
        return None
    return mount.path.rstrip("/") + membership.path.removeprefix(root)


def _unescape(field: str) -> str:
    """Undo the three octal digits that mountinfo writes for blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


def _is_leaf(folder: str) -> bool:
    """Whether there are no cgroups below, by one system call: kernfs counts them as links."""
    try:
        return os.stat(folder).st_nlink == 2
    except FileNotFoundError:
        return True


def _children(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        if error.errno in _NO_ANSWER:
            return []
        raise exceptions.CgroupUnreadable(path=folder, error=error.strerror) from error


def _read(path: str) -> bytes | None:
    """A cgroup's file; ``None`` where the cgroup is gone, has no such file, or can't answer (threaded ones)."""
    try:
        return processes.read_file(path)
    except OSError as error:
        if error.errno in _NO_ANSWER:
            return None
        raise exceptions.CgroupUnreadable(path=path, error=error.strerror) from error
