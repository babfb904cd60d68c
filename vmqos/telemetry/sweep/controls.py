# SPDX-License-Identifier: Apache-2.0
"""Looking at the control groups' masks again and again at little cost."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem, join
from vmqos.telemetry.sweep import ways
from vmqos.telemetry.sweep.ways import Held

_SCHEMATA = "schemata"
_SIZE = "size"
_ENOUGH = 1 << 14
_NOTHING = Held()


class Controls:
    """The control groups of one mount; a text that has not changed is not parsed again.

    :param keep_open: whether each group's ``schemata`` stays open until :meth:`close`.
    """

    def __init__(self, fs: Filesystem, keep_open: bool) -> None:
        self._fs = fs
        self._keep_open = keep_open
        self._descriptors: dict[str, int] = {}
        self._known: dict[str, tuple[bytes, Held]] = {}
        self._before: dict[str, Held] = {}

    @property
    def kept(self) -> int:
        """How many descriptors are open."""
        return len(self._descriptors)

    def read(self, names: Collection[str]) -> Mapping[str, Held]:
        """What each of these control groups holds; nothing where that can't be told (any more).

        The very same value is returned as long as nothing changes.
        """
        for gone in self._known.keys() - set(names):
            del self._known[gone]
            self._forget(gone)
        now = {name: self._read(name) for name in names}
        if now != self._before:
            self._before = now
        return self._before

    def close(self) -> None:
        """Close what is kept."""
        for name in list(self._descriptors):
            self._forget(name)

    def _read(self, name: str) -> Held:
        try:
            raw = self._schemata(name)
            known = self._known.get(name)
            if known is None or known[0] != raw:
                known = raw, ways.parse(raw.decode(), self._size(name))
                self._known[name] = known
            return known[1]
        except exceptions.ResctrlError:
            self._known.pop(name, None)
            return _NOTHING

    def _schemata(self, name: str) -> bytes:
        descriptor = self._descriptors.get(name)
        if descriptor is not None:
            try:
                return os.pread(descriptor, _ENOUGH, 0)
            except OSError:
                self._forget(name)
        if self._keep_open:
            try:
                descriptor = os.open(self._fs.path(join(name, _SCHEMATA)), os.O_RDONLY | os.O_CLOEXEC)
                self._descriptors[name] = descriptor
                return os.pread(descriptor, _ENOUGH, 0)
            except OSError:
                self._forget(name)
        return self._fs.read_bytes(name, _SCHEMATA)

    def _size(self, name: str) -> str:
        try:
            return self._fs.read(name, _SIZE)
        except exceptions.ResctrlError:
            return ""

    def _forget(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
