# SPDX-License-Identifier: Apache-2.0
"""One agent a resctrl: the second one that starts must refuse. So must a second experiment of ``vmqos bench``."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from vmqos.agent import exceptions
from vmqos.resctrl.lock import who_holds

LOCK_DIRECTORY = "/run/vmqos"
"""Not ``[agent] state_path``: two agents with two of these would still be two agents on one resctrl."""


@contextmanager
def only_agent(resctrl_path: str, directory: str = LOCK_DIRECTORY, who: str = "agent") -> Iterator[None]:
    """Hold the lock that belongs to this resctrl, as long as the block runs.

    The lock dies with the process, however that ends; a file that is left behind means nothing.

    :param who: whose lock it is: two that are called differently don't keep each other out.
    :raises vmqos.agent.exceptions.AlreadyRunning: if another process holds it.
    :raises vmqos.agent.exceptions.DirectoryUnusable: if the directory can't be made or written.
    """
    path = _lock_file(resctrl_path, directory, who)
    descriptor = _open_and_lock(path)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)


def is_running(resctrl_path: str, directory: str = LOCK_DIRECTORY, who: str = "agent") -> bool:
    """Whether somebody holds that lock; it is looked at without being taken, which might keep another one out."""
    try:
        descriptor = os.open(_lock_file(resctrl_path, directory, who), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(who_holds(descriptor))
    finally:
        os.close(descriptor)


def _lock_file(resctrl_path: str, directory: str, who: str) -> str:
    name = os.path.realpath(resctrl_path).strip("/").replace("/", "-") or "root"
    return os.path.join(directory, f"{who}-{name}.lock")


def _open_and_lock(path: str) -> int:
    while True:
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
