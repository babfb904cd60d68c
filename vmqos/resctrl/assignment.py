# SPDX-License-Identifier: Apache-2.0
"""Which groups' memory traffic is counted where the hardware has fewer counters than groups (AMD's ABMC).

In the mode ``mbm_event`` (Linux 6.18 and later) each group has a file ``mbm_L3_assignments`` that says, for each event
and cache, whether a hardware counter is assigned to it, and takes changes. Kernels with the patches that led to it call
the mode ``mbm_cntr_assign`` and have one file for all groups, ``info/L3_MON/mbm_assign_control``. In the mode
``default``, and where there is no such mode, every group is counted.

``info/L3_MON/available_mbm_cntrs`` says how many counters are free. By default the kernel assigns them itself when a
group is made, while there are any (``info/L3_MON/mbm_assign_on_mkdir``). A counter that becomes free later is not
assigned.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem, join
from vmqos.resctrl.groups import MON_GROUPS

_INFO = "info/L3_MON"
_PER_GROUP = "mbm_L3_assignments"
_CONTROL = f"{_INFO}/mbm_assign_control"
_FLAGS = {"t": "mbm_total_bytes", "l": "mbm_local_bytes"}
_ACTIVE = re.compile(r"\[(\w+)\]")
_NONE = "_"
_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """An event of a group on one cache, to which a counter can be assigned.

    :ivar event: such as ``mbm_total_bytes``.
    :ivar cache: the cache id.
    """

    event: str
    cache: int


class Assignments(Protocol):
    """How this kernel's counters are assigned; a caller that changes something holds the lock, exclusively."""

    def slots(self, directory: str) -> dict[Slot, bool]:
        """What can be counted of a group, given its directory below the root, and whether it is counted.

        :raises vmqos.resctrl.exceptions.Vanished: if there is no such group (any more).
        """

    def slots_of_all(self, directories: Iterable[str]) -> dict[str, dict[Slot, bool]]:
        """What can be counted of groups, by directory, and whether it is counted; a group that is gone is left out.

        :raises vmqos.resctrl.exceptions.ResctrlError: if that can't be read.
        """

    def assign(self, directory: str, slot: Slot) -> None:
        """Have it counted, from 0 on.

        :raises vmqos.resctrl.exceptions.Vanished: if there is no such group (any more).
        :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses: no counter may be free.
        """

    def take(self, directory: str, slot: Slot) -> None:
        """Have it counted no longer: its counter is free.

        :raises vmqos.resctrl.exceptions.Vanished: if there is no such group (any more).
        :raises vmqos.resctrl.exceptions.CommandFailed: if the kernel refuses.
        """


def find(fs: Filesystem) -> Assignments | None:
    """The way to assign counters; ``None`` where every group is counted anyway.

    :raises vmqos.resctrl.exceptions.ResctrlError: if the mode is there and can't be read.
    """
    try:
        active = _ACTIVE.search(fs.read(_INFO, "mbm_assign_mode"))
    except exceptions.Vanished:
        return None
    mode = active[1] if active else "default"
    if mode == "mbm_event":
        return _PerGroup(fs)
    return _AtOnce(fs) if mode == "mbm_cntr_assign" else None


def available(fs: Filesystem) -> dict[int, int]:
    """How many counters are free, by cache id.

    :raises vmqos.resctrl.exceptions.ResctrlError: if that can't be read.
    """
    found = {}
    for entry in fs.read(_INFO, "available_mbm_cntrs").split(";"):
        cache, _, count = entry.strip().partition("=")
        if _is_number(cache) and _is_number(count):
            found[int(cache)] = int(count)
    return found


class _PerGroup:
    """One file for each group; its lines read ``mbm_total_bytes:0=e;1=_``."""

    def __init__(self, fs: Filesystem) -> None:
        self._fs = fs

    def slots(self, directory: str) -> dict[Slot, bool]:
        found = dict[Slot, bool]()
        for line in self._fs.read(directory, _PER_GROUP).split("\n"):
            event, _, states = line.partition(":")
            found |= {Slot(event.strip(), cache): state != _NONE for cache, state in _entries(states)}
        return found

    def slots_of_all(self, directories: Iterable[str]) -> dict[str, dict[Slot, bool]]:
        found = {}
        for directory in directories:
            with contextlib.suppress(exceptions.Vanished):
                found[directory] = self.slots(directory)
        return found

    def assign(self, directory: str, slot: Slot) -> None:
        self._fs.write(join(directory, _PER_GROUP), f"{slot.event}:{slot.cache}=e")

    def take(self, directory: str, slot: Slot) -> None:
        self._fs.write(join(directory, _PER_GROUP), f"{slot.event}:{slot.cache}={_NONE}")


class _AtOnce:
    """One file for all groups; its lines read ``CONTROL/MONITORING/0=tl;1=t;``, names being empty for the default."""

    def __init__(self, fs: Filesystem) -> None:
        self._fs = fs

    def slots(self, directory: str) -> dict[Slot, bool]:
        try:
            return self.slots_of_all([directory])[directory]
        except KeyError:
            raise exceptions.Vanished(path=self._fs.path(directory)) from None

    def slots_of_all(self, directories: Iterable[str]) -> dict[str, dict[Slot, bool]]:
        wanted, found = {_names(directory): directory for directory in directories}, {}
        for line in self._fs.read(_CONTROL).split("\n"):
            group, _, states = line.rpartition("/")
            if group in wanted:
                found[wanted[group]] = {
                    Slot(event, cache): flag in state
                    for cache, state in _entries(states)
                    for flag, event in _FLAGS.items()
                }
        return found

    def assign(self, directory: str, slot: Slot) -> None:
        self._fs.write(_CONTROL, f"{_names(directory)}/{slot.cache}+{_flag(slot)}")

    def take(self, directory: str, slot: Slot) -> None:
        self._fs.write(_CONTROL, f"{_names(directory)}/{slot.cache}-{_flag(slot)}")


def _flag(slot: Slot) -> str:
    return next(flag for flag, event in _FLAGS.items() if event == slot.event)


def _names(directory: str) -> str:
    """A group as ``mbm_assign_control`` calls it: ``CONTROL/MONITORING``."""
    control, separator, monitoring = f"/{directory}".rpartition(f"/{MON_GROUPS}/")
    return f"{control.strip('/')}/{monitoring}" if separator else f"{directory}/"


def _entries(text: str) -> Iterable[tuple[int, str]]:
    for entry in text.split(";"):
        cache, equals, state = entry.strip().partition("=")
        if equals and _is_number(cache):
            yield int(cache), state


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))
