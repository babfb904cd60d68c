# SPDX-License-Identifier: Apache-2.0
"""Who uses a locked region: the processes that have its device open or mapped."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class User:
    """A process that has a lock's device open or mapped.

    :ivar pid: its PID.
    :ivar command: its name.
    :ivar vm: the UUID of the VM whose QEMU it is; empty for any other process.
    """

    pid: int
    command: str
    vm: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" + (f" of VM {self.vm}" if self.vm else "")


def users(device: str, proc: str = "/proc") -> list[User]:
    """Who has a device open or mapped, as far as the caller may see it; root sees all of them."""
    name = "/" + "/".join(device.rsplit("/", 2)[-2:])
    found = []
    for entry in sorted(filter(str.isdecimal, os.listdir(proc)), key=int):
        with contextlib.suppress(OSError):
            if _has_open(f"{proc}/{entry}", name):
                with open(f"{proc}/{entry}/comm", encoding="utf-8", errors="replace") as file:
                    found.append(User(int(entry), file.read().strip(), _vm_of(f"{proc}/{entry}")))
    return found


def _has_open(process: str, name: str) -> bool:
    """Whether a process has a file whose path ends so: in a mount namespace of its own, /dev may be elsewhere."""
    with open(f"{process}/maps", encoding="utf-8", errors="replace") as file:
        if any(line.rstrip("\n").endswith(name) for line in file):
            return True
    for descriptor in os.listdir(f"{process}/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"{process}/fd/{descriptor}").endswith(name):
                return True
    return False


def _vm_of(process: str) -> str:
    with open(f"{process}/cmdline", "rb") as file:
        words = file.read().split(b"\0")
    return words[words.index(b"-uuid") + 1].decode(errors="replace") if b"-uuid" in words[:-1] else ""
