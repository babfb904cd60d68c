# SPDX-License-Identifier: Apache-2.0
"""A VM's own cgroup, and the processes in it: QEMU, and helpers such as swtpm, virtiofsd or passt.

libvirt gives each VM a cgroup (``virCgroupNewMachine``) and puts QEMU's threads into folders below it (``emulator``,
``vcpu0``, ``iothread1``), on a host with systemd with another one, ``libvirt``, between. QEMU of an unprivileged user,
and any where cgroups are off, stays in the cgroup that it was started in, which is not the VM's.

Any user can make a cgroup of such a name in the slice that systemd delegates to him. So a folder counts only if root
made it, and every folder that leads to it (:func:`_is_roots`). The names of cgroups and mount points are bytes: the
kernel lets them hold anything but a line break, and writes most of it as it is.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vmqos.hypervisor import exceptions, processes

_OF_A_VM = re.compile(
    r"machine-qemu\\x2d([0-9]{1,10})(?:\\x2d[^/]*)?\.scope|qemu-([0-9]{1,10})(?:-[^/]*)?\.libvirt-qemu",
    re.ASCII | re.DOTALL,
)
"""The folder of a VM with systemd (``virSystemdMakeScopeName``) and without (``virCgroupNewDomainPartition``). Both
have libvirt's number for this run of the VM, and of its name what may stand in the name of a host
(``virDomainDriverGenerateMachineName``), which may be nothing. They are in ``machine.slice`` and ``/machine``, or in
the partition that the domain XML names (``<resource><partition>``)."""

LONGEST_MOUNTS = 64 << 20
"""Bytes of ``mountinfo`` that are searched: a namespace has at most 100 000 mounts (``fs.mount-max``), of some hundred
bytes each. cgroups are mounted at boot and stand before what users mount, so a beginning tells."""

LONGEST_MOUNT = 64 << 10
"""Bytes of one line of ``mountinfo``. Two paths of PATH_MAX bytes are in it, each byte written as up to four."""

MOST_CGROUPS = 8192
"""Cgroups below a VM's: libvirt makes one for each vCPU, of which KVM has at most 4096, and each I/O thread."""

MOST_PROCESSES = 16384
"""Processes in a VM's cgroup: systemd lets a machine have no more tasks (:data:`processes.MOST_THREADS`)."""

_LONGEST_LIST = 8 * MOST_PROCESSES
"""Bytes of ``cgroup.procs``: a PID has at most seven digits (``PID_MAX_LIMIT``), and a line break."""

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
    candidates = own_folders(parse_memberships(processes.cgroups(pid)))
    if not candidates:
        return None
    # A host of containers has a thousand mounts. The cgroups' are among the first: no more than these are read.
    mounts, seen = parse_mounts(_lines(f"{processes.PROC}/self/mountinfo")), list[CgroupMount]()
    for candidate in candidates:
        for mount in _from_the_first(mounts, seen):
            directory = below(mount, candidate)
            if directory is not None and _is_roots(directory, mount.path):
                return directory
    return None


def _from_the_first(mounts: Iterator[CgroupMount], seen: list[CgroupMount]) -> Iterator[CgroupMount]:
    """All mounts, those that were seen before the others.

    :param mounts: the mounts that were not seen yet.
    :param seen: the others; what is seen now is added.
    """
    yield from tuple(seen)
    for mount in mounts:
        seen.append(mount)
        yield mount


def libvirt_id(directory: str) -> int | None:
    """The number that libvirt gave this run of the VM whose cgroup it is; ``None`` where it is no VM's.

    :param directory: as :func:`vm_cgroup` gives it.
    """
    named = _OF_A_VM.fullmatch(directory.rpartition("/")[2])
    return int(named[1] or named[2]) if named else None


def processes_in(cgroup: str) -> set[int]:
    """The PIDs of all processes in a cgroup and in those below it; empty where it is gone.

    :param cgroup: its directory, as :func:`vm_cgroup` gives it.
    :raises vmqos.hypervisor.exceptions.CgroupUnreadable: if the kernel does not let this user read it.
    :raises vmqos.hypervisor.exceptions.CgroupTooLarge: if there are more than :data:`MOST_CGROUPS` cgroups or
        :data:`MOST_PROCESSES` processes.
    """
    found, waiting, seen = set[int](), [cgroup], 1
    while waiting:
        folder = waiting.pop()
        content = _read(f"{folder}/cgroup.procs")
        if content is None:
            continue
        found.update(int(line) for line in content.split(b"\n") if line.isdigit())
        if len(found) > MOST_PROCESSES:
            raise exceptions.CgroupTooLarge(path=cgroup, most=MOST_PROCESSES, what="processes")
        # A threaded domain's cgroup.procs lists the processes of all its threaded children, which have no readable one
        # of their own (Documentation/admin-guide/cgroup-v2.rst, "Threads").
        if not _is_leaf(folder) and _read(f"{folder}/cgroup.type") != b"domain threaded\n":
            below_it = _children(folder, MOST_CGROUPS - seen)
            seen += len(below_it)
            waiting += below_it
    # The kernel shows processes of other PID namespaces as 0.
    return found - {0}


def parse_memberships(content: bytes) -> list[Membership]:
    """Read ``/proc/<pid>/cgroup`` (cgroups(7)); a line that is none such is passed over.

    The kernel refuses line breaks in the names of cgroups for this file's sake (``cgroup_mkdir``), and nothing else.
    """
    found = []
    for line in content.split(b"\n"):
        fields = line.split(b":", 2)
        if len(fields) == 3 and fields[2].startswith(b"/"):
            controllers = frozenset(os.fsdecode(fields[1]).split(",")) - {""}
            found.append(Membership(controllers, os.fsdecode(fields[2])))
    return found


def parse_mounts(lines: Iterable[bytes]) -> Iterator[CgroupMount]:
    """The cgroup hierarchies among the lines of ``/proc/<pid>/mountinfo`` (proc(5)).

    A line that is none such is passed over. No line is read before the next hierarchy is asked for.
    """
    for line in lines:
        mount, _, file_system = line.partition(b" - ")
        fields, described = mount.split(b" "), file_system.split(b" ")
        if len(fields) < 6 or len(described) < 3 or described[0] not in (b"cgroup", b"cgroup2"):
            continue
        root, path = (os.fsdecode(_unescape(field)) for field in fields[3:5])
        options = frozenset(os.fsdecode(described[2]).split(",")) - {"rw", "ro"}
        yield CgroupMount(path, root, options if described[0] == b"cgroup" else frozenset())


def own_folders(memberships: Iterable[Membership]) -> list[Membership]:
    """The VM's folder in each hierarchy that has one, the folder with the most information first.

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


def _unescape(field: bytes) -> bytes:
    """Undo the three octal digits that mountinfo writes for blanks, line breaks and backslashes (``mangle``)."""
    return re.sub(rb"\\([0-3][0-7]{2})", lambda octal: bytes((int(octal[1], 8),)), field)


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a file that may be long, without their line breaks, as far as :data:`LONGEST_MOUNTS` goes.

    A line of more than :data:`LONGEST_MOUNT` bytes is left out.
    """
    with open(path, "rb", buffering=0) as file:
        rest, whole, left = b"", True, LONGEST_MOUNTS
        while left > 0 and (chunk := file.read(LONGEST_MOUNT)):
            left -= len(chunk)
            *lines, last = (rest + chunk).split(b"\n")
            if lines and not whole:
                del lines[0]
                whole = True
            yield from (line for line in lines if len(line) <= LONGEST_MOUNT)
            whole = whole and len(last) <= LONGEST_MOUNT
            rest = last if whole else b""


def _is_roots(directory: str, mount: str) -> bool:
    """Whether root, or the user that the agent runs as, owns a folder and every one between it and the mount.

    systemd gives a user's own manager a part of the tree, ``user.slice/user-1000.slice/user@1000.service``, where the
    user makes folders of any name; they are the user's (``Delegate=`` in systemd.resource-control(5)).
    """
    trusted = {0, os.geteuid()}
    try:
        while True:
            status = os.lstat(directory)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid not in trusted:
                return False
            if len(directory) <= len(mount):
                return True
            directory = directory.rpartition("/")[0] or "/"
    except (OSError, ValueError):
        # ValueError: a path with a zero byte, which no cgroup has.
        return False


def _is_leaf(folder: str) -> bool:
    """Whether there are no cgroups below, by one system call: kernfs counts them as links."""
    try:
        return os.stat(folder).st_nlink == 2
    except FileNotFoundError:
        return True
    except OSError as error:
        raise exceptions.CgroupUnreadable(path=folder, error=error.strerror) from error


def _children(folder: str, most: int) -> list[str]:
    """The paths of the cgroups right below. :raises CgroupTooLarge: if they are more than ``most``."""
    found = list[str]()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if len(found) == most:
                        raise exceptions.CgroupTooLarge(path=folder, most=MOST_CGROUPS, what="cgroups")
                    found.append(entry.path)
            return found
    except OSError as error:
        if error.errno in _NO_ANSWER:
            return []
        raise exceptions.CgroupUnreadable(path=folder, error=error.strerror) from error


def _read(path: str) -> bytes | None:
    """A cgroup's file; ``None`` where the cgroup is gone, has no such file, or can't answer (threaded ones)."""
    try:
        return processes.read_file(path, most=_LONGEST_LIST)
    except OSError as error:
        if error.errno in _NO_ANSWER:
            return None
        if error.errno == errno.EFBIG:
            raise exceptions.CgroupTooLarge(path=path, most=MOST_PROCESSES, what="processes") from error
        raise exceptions.CgroupUnreadable(path=path, error=error.strerror) from error
