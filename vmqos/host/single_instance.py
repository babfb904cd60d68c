# SPDX-License-Identifier: Apache-2.0
"""One agent a resctrl: the second one that starts must refuse. So must a second experiment of ``vmqos bench``.

Any user who can open a lock file can lock it for ever, even with no right but to read it. So these files are root's
alone from the moment they are made. Earlier versions made theirs readable for everybody (``*.lock``). On such a file
only the lock of a process of root's counts, and no new one is made: who opened it once has it open for ever.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from vmqos.host import exceptions
from vmqos.hypervisor import processes
from vmqos.resctrl.lock import pids_that_hold

LOCK_DIRECTORY = "/run/vmqos"
"""Not ``[agent] state_path``: two agents with two of these would still be two agents on one resctrl."""

SUFFIX, EARLIER_SUFFIX = ".running", ".lock"
"""What the names of the lock files end with, and what they ended with while everybody could open them."""


@contextmanager
def only_agent(resctrl_path: str, directory: str = LOCK_DIRECTORY, who: str = "agent") -> Iterator[None]:
    """Hold the lock that belongs to this resctrl, as long as the block runs.

    The lock dies with the process, however that ends; a file that is left behind means nothing.

    :param who: whose lock it is: two that are called differently don't keep each other out.
    :raises vmqos.host.exceptions.AlreadyRunning: if another process holds it.
    :raises vmqos.host.exceptions.DirectoryUnusable: if the directory can't be made or written.
    """
    path, earlier = _lock_files(resctrl_path, directory, who)
    for pid in _holders(earlier):
        raise exceptions.AlreadyRunning(earlier, str(pid))
    descriptor = _open_and_lock(path)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)


def is_running(resctrl_path: str, directory: str = LOCK_DIRECTORY, who: str = "agent") -> bool:
    """Whether a process holds that lock. The lock is not taken to find out: that might keep another process out."""
    return any(map(_holders, _lock_files(resctrl_path, directory, who)))


def _lock_files(resctrl_path: str, directory: str, who: str) -> tuple[str, str]:
    """The lock file, and the one of earlier versions."""
    name = os.path.realpath(resctrl_path).strip("/").replace("/", "-") or "root"
    path = os.path.join(directory, f"{who}-{name}")
    return f"{path}{SUFFIX}", f"{path}{EARLIER_SUFFIX}"


def _holders(path: str) -> list[int]:
    """The processes that hold a lock on a file and run as the file's owner. A lock of another user means nothing."""
    try:
        # It takes no right to the file to ask who has locked it.
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        owner = os.fstat(descriptor).st_uid
        return [pid for pid in pids_that_hold(descriptor) if _runs_as(pid, owner)]
    finally:
        os.close(descriptor)


def _runs_as(pid: int, owner: int, proc: str = "/proc") -> bool:
    """Whether all four user ids of a process are this one: a program that is setuid root keeps its caller's real id.

    :param proc: where procfs is mounted.
    """
    with suppress(OSError):
        status = processes.read_file(f"{proc}/{pid}/status", most=processes.HEAD_OF_STATUS, cut=True)
        for line in status.split(b"\n"):
            if line.startswith(b"Uid:"):
                return {int(uid) for uid in line.split()[1:]} == {owner}
    return False


def _open_and_lock(path: str) -> int:
    while True:
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise exceptions.DirectoryUnusable(os.path.dirname(path), error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 32).decode().strip()
            os.close(descriptor)
            raise exceptions.AlreadyRunning(path, owner) from error
        # The last owner may have unlinked the file between our open and our lock: then it locks nothing.
        try:
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)
