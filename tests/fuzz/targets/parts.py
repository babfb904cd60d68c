# SPDX-License-Identifier: Apache-2.0
"""Inputs that stand for several files, and where they are laid down."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem, join


def split(data: bytes) -> dict[str, bytes]:
    """The files of an input by name: each begins with a line ``== NAME``; what stands before the first is dropped."""
    found: dict[str, bytes] = {}
    for part in (b"\n" + data).split(b"\n== ")[1:]:
        name, _, content = part.partition(b"\n")
        found[name.decode(errors="replace").strip("/")] = content
    return found


@functools.cache
def folder() -> Path:
    """A folder of this process's own, in ``VMQOS_FUZZ_FOLDER``: who runs the target removes it."""
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=os.environ["VMQOS_FUZZ_FOLDER"]))


def lay_down(path: str, content: bytes) -> Path:
    """Write a file below :func:`folder`."""
    found = folder() / path
    if not found.parent.exists():
        found.parent.mkdir(parents=True)
    found.write_bytes(content)
    return found


class Files(Filesystem):
    """A resctrl whose files are those of an input."""

    __slots__ = ("_files",)

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(str(folder()))
        self._files = files
        (folder() / "info").mkdir(exist_ok=True)

    def read_bytes(self, *relative: str) -> bytes:
        path = join(*relative)
        if path not in self._files:
            raise exceptions.Vanished(path=path)
        return self._files[path]

    def listdir(self, *relative: str) -> list[str]:
        return sorted(self._below(*relative))

    def directories(self, *relative: str) -> list[str]:
        return sorted(name for name, is_directory in self._below(*relative).items() if is_directory)

    def _below(self, *relative: str) -> dict[str, bool]:
        """The names right below a directory, and whether they are directories."""
        start, found = join(*relative), dict[str, bool]()
        for path in self._files:
            inside = path if not start else path.removeprefix(f"{start}/") if path.startswith(f"{start}/") else ""
            name, slash, _ = inside.partition("/")
            # No directory has an entry of these names.
            if name not in ("", ".", ".."):
                found[name] = found.get(name, False) or bool(slash)
        if start and not found:
            raise exceptions.Vanished(path=start)
        return found
