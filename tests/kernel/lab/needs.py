# SPDX-License-Identifier: Apache-2.0
"""What this machine lacks for the lab, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kernel.lab.debian import CONTAINED, KEYRING
from tests.kernel.lab.errors import Lacking

ROOM = 3 << 30
"""Bytes that a build of everything takes while it goes on; a third of it stays."""

PACKAGES = {
    "apt-get": "apt",
    "gcc": "gcc libc6-dev",
    "gpgv": "gpgv",
    "mke2fs": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Programs, and Debian's packages of them."""


def for_guests() -> list[str]:
    """What is missing to boot a guest, a line each for people."""
    return _programs("setpriv")


def for_compiling() -> list[str]:
    """What is missing to compile the plugin."""
    return _programs("gcc")


def for_packages(cache: Path) -> list[str]:
    """What is missing to make systems out of Debian's packages.

    :param cache: the directory that they are kept in.
    """
    missing = [] if os.geteuid() == 0 else ["root's rights, for chroots and namespaces: sudo -E, or tools/test kernel"]
    if platform.machine() != "x86_64":
        missing.append("an x86_64 processor: the guests' packages are configured by running them")
    missing.extend(_programs("apt-get", "gpgv", "mke2fs", "mmdebstrap", "setpriv", "unshare"))
    if not KEYRING.exists():
        missing.append(f"{KEYRING}: apt install debian-archive-keyring")
    if not missing and (refusal := _refusal([*CONTAINED, "true"])):
        missing.append(f"the right to make namespaces ({refusal}): in a container, start it with --privileged")
    if (free := shutil.disk_usage(cache).free) < ROOM:
        missing.append(
            f"room: {free >> 20} MiB are free in {cache}, and a build takes {ROOM >> 20}; have VMQOS_KERNEL_LAB name "
            f"another directory"
        )
    return missing


def insist(purpose: str, missing: Sequence[str]) -> None:
    """Say what is missing, if anything is.

    :param purpose: what for, such as ``to boot a guest``.
    :raises Lacking: with a line for each.
    """
    if missing:
        raise Lacking("\n  ".join([f"{purpose}, this machine lacks", *missing]))


def _programs(*names: str) -> list[str]:
    return [f"the program {name}: apt install {PACKAGES[name]}" for name in names if not shutil.which(name)]


def _refusal(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""
