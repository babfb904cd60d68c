# SPDX-License-Identifier: Apache-2.0
"""What keeps a program from working on this host's resctrl."""

from __future__ import annotations


class HostError(Exception):
    """The root of this package's errors."""


class AlreadyRunning(HostError):
    """Another agent works on the same resctrl."""

    def __init__(self, lock_file: str, owner: str) -> None:
        super().__init__(
            f"another vmqos-agent{f' (PID {owner})' if owner else ''} holds {lock_file}: "
            "one host has one agent; stop the other one first (systemctl stop vmqos-agent)"
        )
        self.lock_file = lock_file
        self.owner = owner


class DirectoryUnusable(HostError):
    """A directory of the agent's own can't be made or written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"can't use the directory {path}: {reason}; only root may, such as with sudo")
