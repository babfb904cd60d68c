# SPDX-License-Identifier: Apache-2.0
"""The guest's initial RAM disk: an archive of a few files (the kernel's Documentation: initramfs buffer format)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write(path: Path, files: Mapping[str, bytes]) -> None:
    """Write an archive of executable files, by path, and of the directories that they are in."""
    directories = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
    with path.open("wb") as archive:
        inode = 0
        for inode, name in enumerate(directories, 1):
            archive.write(_entry(inode, name, 0o040755, b""))
        for number, (name, content) in enumerate(files.items(), inode + 1):
            archive.write(_entry(number, name, 0o100755, content))
        archive.write(_entry(0, "TRAILER!!!", 0, b""))


def _entry(inode: int, name: str, mode: int, content: bytes) -> bytes:
    """One entry of the format "newc": 13 fields of 8 hexadecimal digits, the name, the content."""
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return _padded(header) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
