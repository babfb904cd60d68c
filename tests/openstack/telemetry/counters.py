# SPDX-License-Identifier: Apache-2.0
"""Counters that show what a test wants: files mounted over resctrl's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tools.lab import mounts
from tools.lab.workspace import Workspace


class Counters:
    """The counters of a resctrl, some of them held.

    :param root: where resctrl is mounted.
    """

    def __init__(self, workspace: Workspace, root: Path) -> None:
        self._workspace = workspace
        self._root = root
        self._held: dict[Path, Path] = {}
        self._numbers = count(1)

    def hold(self, uuid: str, event: str, text: int | str, cache: int | None = None) -> None:
        """Have a VM's counter show a text, in one cache or in each; held already, it changes.

        :raises subprocess.CalledProcessError: if it can't be done.
        """
        for place in self._places(uuid, event, cache):
            if place not in self._held:
                cover = self._workspace.path / f"counter-{next(self._numbers)}"
                _show(cover, text)
                self._workspace.record_mount(place)
                subprocess.run(["mount", "--bind", cover, place], check=True)
                self._held[place] = cover
            _show(self._held[place], text)

    def release(self) -> None:
        """Let all of them show again what they would."""
        for place, cover in self._held.items():
            # Who reads it at that moment keeps it busy.
            mounts.unmount(place)
            cover.unlink()
        self._held.clear()

    def _places(self, uuid: str, event: str, cache: int | None) -> Iterator[Path]:
        """The files of a VM's counter: its group is found by its name, wherever it is."""
        name = f"vmqos.{uuid}"
        groups = [
            *self._root.glob(name),
            *self._root.glob(f"mon_groups/{name}"),
            *self._root.glob(f"*/mon_groups/{name}"),
        ]
        assert len(groups) == 1, f"the groups of {uuid}: {groups}"
        for directory in sorted((groups[0] / "mon_data").glob("mon_L3_*")):
            if cache is None or directory.name == f"mon_L3_{cache:02}":
                yield directory / event


def _show(cover: Path, text: int | str) -> None:
    """Write in one piece and always as much, so that no reader finds half of it."""
    descriptor = os.open(cover, os.O_WRONLY | os.O_CREAT, 0o444)
    try:
        os.pwrite(descriptor, f"{text}".ljust(30).encode() + b"\n", 0)
    finally:
        os.close(descriptor)
