# SPDX-License-Identifier: Apache-2.0
"""Where resctrl is mounted and how; what is missing where it is not, with the command that mends it."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass

from vmqos.resctrl import cpuinfo, exceptions

DEFAULT_PATH = "/sys/fs/resctrl"

_OPTIONS = frozenset({"cdp", "cdpl2", "mba_MBps", "debug"})
_CPU_FLAGS = ("rdt_a", "cat_l3", "cat_l2", "mba", "cqm")
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_UNTHROTTLED_MBPS = "4294967295"

_LONGEST_MOUNTS = 64 << 20
"""Bytes of the list of mounts: a namespace has at most 100 000 (``fs.mount-max``), of some hundred bytes each. Users
make some of them (``fusermount3``), of names that they choose."""
_LONGEST = 4 << 20
"""Bytes of other files of /proc and of a simulator's."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A usable mount of resctrl.

    :ivar path: the mount point.
    :ivar options: what it is mounted with, of ``cdp``, ``cdpl2``, ``mba_MBps`` and ``debug``.
    :ivar read_only: whether nothing can be changed.
    :ivar simulated: whether it is a FUSE filesystem that plays resctrl, and not the kernel's own.
    """

    path: str
    options: frozenset[str]
    read_only: bool
    simulated: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    fstype: str
    options: frozenset[str]


def find(
    path: str | None = None, *, options: Collection[str] = (), writable: bool = True, proc: str = "/proc"
) -> Mount:
    """Find the mounted resctrl, or say what is missing.

    :param path: look here only, where a simulator is welcome, too; ``None``: wherever the kernel's own is mounted.
    :param options: mount options that are needed, of ``cdp``, ``cdpl2``, ``mba_MBps`` and ``debug``.
    :param writable: whether a read-only mount is an error.
    :param proc: where procfs is mounted.
    :raises vmqos.resctrl.exceptions.NotSupported: if the kernel has no resctrl.
    :raises vmqos.resctrl.exceptions.NotMounted: if it is not mounted (there).
    :raises vmqos.resctrl.exceptions.NotResctrl: if something else is mounted there.
    :raises vmqos.resctrl.exceptions.DeadMount: if it is a simulator's and the simulator has ended.
    :raises vmqos.resctrl.exceptions.Unreadable: if the caller may not look into it.
    :raises vmqos.resctrl.exceptions.MissingMountOptions: if it is mounted without one of ``options``.
    :raises vmqos.resctrl.exceptions.ReadOnly: if it is mounted read-only and has to be ``writable``.
    """
    entry = _entry(path, proc)
    _look_inside(entry)
    simulated = entry.fstype != "resctrl"
    active = _features(entry.path) if simulated else entry.options & _OPTIONS
    missing = set(options) - active
    if missing:
        raise exceptions.MissingMountOptions(
            path=entry.path,
            missing=", ".join(sorted(missing)),
            mend=_mount_again(entry.path, missing | active, simulated),
        )
    read_only = "ro" in entry.options
    if read_only and writable:
        raise exceptions.ReadOnly(path=entry.path)
    return Mount(entry.path, active, read_only, simulated)


def _entry(path: str | None, proc: str) -> _Entry:
    entries = _mounts(proc)
    kernel_own = [entry for entry in entries if entry.fstype == "resctrl"]
    if path is None:
        if kernel_own:
            return kernel_own[0]
        path = DEFAULT_PATH
    else:
        path = os.path.realpath(path)
        # The last of several mounts on one directory hides the others.
        for entry in reversed(entries):
            if entry.path == path:
                return entry
    if kernel_own:
        elsewhere = kernel_own[0].path
        command = f"mount --bind {shlex.quote(elsewhere)} {shlex.quote(path)}"
        mend = f"it is mounted at {elsewhere}; configure that path, or {command}"
        raise exceptions.NotMounted(path=path, mend=mend, command=command)
    if "resctrl" not in _read(f"{proc}/filesystems").split():
        raise exceptions.NotSupported(path=path, cause=_why_not_supported(proc))
    command = f"mount -t resctrl resctrl {shlex.quote(path)}"
    raise exceptions.NotMounted(path=path, mend=command, command=command)


def _mounts(proc: str) -> list[_Entry]:
    try:
        with open(f"{proc}/self/mounts", "rb") as file:
            # A mount point may hold every other break of lines than this one, which is written as an octal number.
            lines = file.read(_LONGEST_MOUNTS).split(b"\n")
    except OSError as error:
        raise exceptions.Unreadable(
            path=f"{proc}/self/mounts", errno_name=errno.errorcode.get(error.errno or 0, "")
        ) from error
    return [_parse_mount(line) for line in lines if line.count(b" ") >= 3]


def _parse_mount(line: bytes) -> _Entry:
    r"""Read one line; the kernel writes blanks, tabs, line breaks, # and backslashes as octal numbers (``\040``)."""
    _, path, fstype, options = line.split(b" ")[:4]
    unescaped = _ESCAPE.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), path)
    return _Entry(os.fsdecode(unescaped), os.fsdecode(fstype), frozenset(os.fsdecode(options).split(",")))


def _look_inside(entry: _Entry) -> None:
    if entry.fstype != "resctrl" and not entry.fstype.startswith("fuse"):
        raise exceptions.NotResctrl(path=entry.path, fstype=entry.fstype)
    try:
        os.stat(f"{entry.path}/info")
        os.stat(f"{entry.path}/schemata")
    except (FileNotFoundError, ValueError) as error:
        # ValueError: a path with a zero byte, which no mount has.
        raise exceptions.NotResctrl(path=entry.path, fstype=entry.fstype) from error
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            raise exceptions.DeadMount(path=entry.path) from error
        raise exceptions.Unreadable(path=entry.path, errno_name=errno.errorcode.get(error.errno or 0, "")) from error


def _features(path: str) -> frozenset[str]:
    """The mount options of a simulator, by their effect: FUSE does not show them in the list of mounts."""
    effects = {
        "cdp": os.path.exists(f"{path}/info/L3CODE"),
        "cdpl2": os.path.exists(f"{path}/info/L2CODE"),
        "mba_MBps": os.path.exists(f"{path}/mba_MBps_event") or _UNTHROTTLED_MBPS in _read(f"{path}/schemata"),
        "debug": os.path.exists(f"{path}/ctrl_hw_id"),
    }
    return frozenset(option for option, active in effects.items() if active)


def _mount_again(path: str, options: set[str] | frozenset[str], simulated: bool) -> str:
    wanted = ",".join(sorted(options))
    if simulated:
        return f"fusermount3 -u {path} && vmqos simulate {path} --mount-options {wanted}"
    return f"umount {path} && mount -t resctrl -o {wanted} resctrl {path}"


def _why_not_supported(proc: str) -> str:
    """The likeliest cause: the processor, the boot parameter, or the kernel's configuration."""
    flags = cpuinfo.flags(proc)
    present = [flag for flag in _CPU_FLAGS if flag in flags]
    parameter = next((word for word in _read(f"{proc}/cmdline").split() if word.startswith("rdt=")), "")
    if not present:
        return (
            f"the processor announces neither Intel RDT nor AMD QoS (none of {', '.join(_CPU_FLAGS)} among the flags "
            "in /proc/cpuinfo). Switch it on in the firmware; a virtual machine does not have it. "
            "To try things out without: vmqos simulate"
        )
    if "!" in parameter:
        return f"the processor has it ({', '.join(present)}), the boot parameter {parameter} switches it off"
    return (
        f"the processor has it ({', '.join(present)}), the kernel does not use it. It needs CONFIG_X86_CPU_RESCTRL=y "
        "(grep RESCTRL /boot/config-$(uname -r)); where an erratum keeps it off, boot with "
        "rdt=cmt,mbmtotal,mbmlocal,l3cat,mba"
    )


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return ""
