# SPDX-License-Identifier: Apache-2.0
"""Who uses a locked region: the processes that have its device open or mapped.

A process chooses the names of its files, how many it has, and how long the kernel has to wait for what it maps. So a
file whose path ends like the device's is compared by its device number, and no process is waited for.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

PATIENCE = 1.0
"""Seconds that one process's answer is waited for. A device of the host answers at once; a file may be in a filesystem
of the process's own (FUSE) that never does, and so may what it maps (``mmap_lock``)."""

MOST_FILES = 1 << 16
"""Files of one process that are looked at."""

LONGEST_MAPS = 64 << 20
"""Bytes of ``maps``: a process has at most 65 530 mappings (``vm.max_map_count``), of some hundred bytes each."""

_LONGEST_COMMAND_LINE = 1 << 20
_UUID = re.compile(rb"\0-uuid\0([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\0")
_UIDS = re.compile(rb"^Uid:\t([0-9]+)\t([0-9]+)\t", re.MULTILINE)
_ADDRESSES = re.compile(rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ")
_HEAD = 4096

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class User:
    """A process that has a lock's device open or mapped.

    :ivar pid: its PID.
    :ivar command: its name.
    :ivar vm: the UUID of the VM whose QEMU it says it is; empty for any other process.
    :ivar doubt: why it can't be told whether it has; empty where it was seen to have.
    """

    pid: int
    command: str
    vm: str = ""
    doubt: str = ""

    def __str__(self) -> str:
        of_vm = f" of VM {self.vm}" if self.vm else ""
        return f"process {self.pid} ({self.command}){of_vm}" + (f", or not: {self.doubt}" if self.doubt else "")


class _CantTell(Exception):
    """What a process has open can't be told; the message says why."""


def users(device: str, proc: str = "/proc") -> list[User]:
    """Who has a device open or mapped, as far as the caller may see it; root sees all of them.

    Some processes may open the device, and /proc does not tell whether they do. Such a process is listed as a user too,
    with the reason for the doubt. The list is empty where the device is gone.
    """
    try:
        found = os.stat(device)
    except OSError:
        return []
    # In a mount namespace of its own, a process may have /dev elsewhere.
    name = os.fsencode("/" + "/".join(device.rsplit("/", 2)[-2:]))
    return list(_users(proc, name, found))


def _users(proc: str, name: bytes, device: os.stat_result) -> Iterator[User]:
    for entry in sorted((entry for entry in os.listdir(proc) if entry.isascii() and entry.isdecimal()), key=int):
        process = f"{proc}/{entry}"
        with contextlib.suppress(OSError):
            if not _may_open(process, device):
                continue
            doubt = ""
            try:
                if not _has_open(process, name, device.st_rdev):
                    continue
            except _CantTell as error:
                doubt = str(error)
            command = _head(f"{process}/comm", _HEAD).removesuffix(b"\n").decode(errors="backslashreplace")
            yield User(int(entry), command, _vm_of(process), doubt)


def _may_open(process: str, device: os.stat_result) -> bool:
    """Whether a process is root's or the device's owner's, where the device is theirs alone."""
    if device.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return True
    found = _UIDS.search(_head(f"{process}/status", _HEAD))
    return found is None or not {int(found[1]), int(found[2])}.isdisjoint({0, device.st_uid})


def _has_open(process: str, name: bytes, number: int) -> bool:
    """Whether a process has the device open or mapped. :raises _CantTell: if that can't be told."""
    with os.scandir(f"{process}/fd") as descriptors:
        for count, descriptor in enumerate(descriptors):
            if count == MOST_FILES:
                raise _CantTell(f"it has more than {MOST_FILES} files open")
            with contextlib.suppress(OSError):
                if os.fsencode(os.readlink(descriptor.path)).endswith(name) and _is(descriptor.path, number):
                    return True
    return any(_is(path, number) for path in _within_patience(lambda: _mapped(process, name)))


def _is(path: str, number: int) -> bool:
    """Whether a file is the device of that number; one that does not answer is none."""

    def ask() -> bool:
        status = os.stat(path)
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == number

    try:
        return _within_patience(ask)
    except (OSError, _CantTell):
        return False


def _mapped(process: str, name: bytes) -> list[str]:
    """The files that a process maps and whose path ends so, as links that lead to them."""
    found, left = [], LONGEST_MAPS
    with open(f"{process}/maps", "rb") as file:
        while line := file.readline(left):
            left -= len(line)
            if left <= 0:
                raise _CantTell("it maps too many files")
            if line.removesuffix(b"\n").endswith(name) and (addresses := _ADDRESSES.match(line)):
                first, last = (int(address, 16) for address in addresses.groups())
                found.append(f"{process}/map_files/{first:x}-{last:x}")
    return found


def _vm_of(process: str) -> str:
    """The UUID that a process says it runs; empty where it says none, or does not answer."""
    try:
        said = _within_patience(lambda: _head(f"{process}/cmdline", _LONGEST_COMMAND_LINE))
    except (OSError, _CantTell):
        return ""
    found = _UUID.search(b"\0" + said)
    return found[1].decode() if found else ""


def _head(path: str, most: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(most)


def _within_patience(ask: Callable[[], _T]) -> _T:
    """What a function returns or raises; one that takes longer than :data:`PATIENCE` is left alone.

    :raises _CantTell: if it takes longer.
    """
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(PATIENCE)
    except TimeoutError:
        raise _CantTell(f"it does not answer within {PATIENCE:g} s") from None
