# SPDX-License-Identifier: Apache-2.0
"""Copies of this tree, for what a build writes into one, and for what a tree says of its version."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tools.lab.workspace import CHECKOUT

IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@vmqos.example", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str) -> str:
    """What git says in a folder, which may be another user's.

    :raises subprocess.CalledProcessError: if it fails.
    """
    command = ["git", "-c", "safe.directory=*", *IDENTITY, "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def copy_to(folder: Path) -> Path:
    """Copy what git knows of this tree, or would with ``git add``, changes included. The copy is no repository.

    :param folder: to be made.
    """
    for name in git(CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        source, target = CHECKOUT / name, folder / name
        # git tells of a file, too, that was removed and not committed.
        if name and (source.is_symlink() or source.exists()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def commit(folder: Path) -> None:
    """Make a copy a repository with a history: one commit of it all, and one after it that changes nothing."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Everything")
    git(folder, "commit", "--quiet", "--message", "Nothing", "--allow-empty")
