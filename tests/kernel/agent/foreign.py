# SPDX-License-Identifier: Apache-2.0
"""What others have in resctrl, as a value that is the same as long as nobody touches it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

Belongings = dict[str, Mapping[str, str]]
"""The content of each file that can be written, and the names of the monitoring groups, by group."""

FILES = ("schemata", "mode", "cpus", "tasks")


def belongings(root: Path, groups: Iterable[str]) -> Belongings:
    """Everything that these groups have.

    :param groups: paths relative to the root, of control groups or of monitoring groups.
    """
    return {group: _of_one(root / group) for group in groups}


def _of_one(group: Path) -> Mapping[str, str]:
    found = {name: (group / name).read_text() for name in FILES if (group / name).exists()}
    # A removed and recreated directory is another one.
    found["inode"] = str(group.stat().st_ino)
    if (group / "mon_groups").is_dir():
        for name in sorted(os.listdir(group / "mon_groups")):
            for key, text in _of_one(group / "mon_groups" / name).items():
                found[f"mon_groups/{name}/{key}"] = text
    return found


def set_masks(root: Path, group: str, mask: int) -> None:
    """Give a group the same ways on every cache, with no thought for others.

    :raises OSError: if the kernel refuses.
    """
    line = next(line for line in (root / "schemata").read_text().splitlines() if line.strip().startswith("L3:"))
    caches = (pair.partition("=")[0] for pair in line.strip().removeprefix("L3:").split(";"))
    write(root / group / "schemata", f"L3:{';'.join(f'{cache}={mask:x}' for cache in caches)}\n")


def write(file: Path, text: str) -> None:
    """One write, whose error is not lost in a buffer."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
