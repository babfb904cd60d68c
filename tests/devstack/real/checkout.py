# SPDX-License-Identifier: Apache-2.0
"""DevStack's own tree: a checkout that is named, or a commit fetched once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VARIABLE = "VMQOS_DEVSTACK"
REPOSITORY = "https://opendev.org/openstack/devstack"
COMMIT = "493835a61a996731a7031861f80c7629acd5d6f2"
"""Of July 2026. Another one is tried by naming its checkout in :data:`VARIABLE`."""


class NoDevStack(Exception):
    """There is no DevStack to be had; the message says why, and what to do."""


def find() -> Path:
    """The tree: of ``$VMQOS_DEVSTACK``, or :data:`COMMIT` in the user's cache directory (XDG Base Directory).

    :raises NoDevStack: if it is in neither, and can't be fetched.
    """
    if chosen := os.environ.get(VARIABLE):
        if not Path(chosen, "functions-common").is_file():
            raise NoDevStack(f"{VARIABLE}={chosen} is no checkout of DevStack: it has no functions-common")
        return Path(chosen).absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmqos"
    tree = cache / f"devstack-{COMMIT[:12]}"
    if not tree.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        _fetch(tree)
    return tree


def _fetch(tree: Path) -> None:
    """Fetch it beside its place, and move it there when it is complete."""
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="devstack-") as temporary:
        fetched = Path(temporary) / "tree"
        for words in (
            ["init", "--quiet", str(fetched)],
            ["-C", str(fetched), "fetch", "--quiet", "--depth=1", REPOSITORY, COMMIT],
            ["-C", str(fetched), "checkout", "--quiet", "--detach", "FETCH_HEAD"],
        ):
            done = subprocess.run(
                ["git", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
            )
            if done.returncode:
                raise NoDevStack(
                    f"DevStack {COMMIT[:12]} could not be fetched from {REPOSITORY}: {done.stderr.strip()}. Name a "
                    f"checkout of DevStack in the environment: {VARIABLE}=/path/to/devstack"
                )
        try:
            fetched.rename(tree)
        except OSError:
            # Another process was faster.
            if not tree.is_dir():
                raise


def copy(target: Path) -> None:
    """Put a copy of the tree, in which DevStack may write, where there is nothing yet.

    :raises NoDevStack: as :func:`find`.
    """
    shutil.copytree(find(), target, symlinks=True, ignore=shutil.ignore_patterns(".git"))
