# SPDX-License-Identifier: Apache-2.0
"""What resctrl says, read from outside: none of the project's own code, and never the agent's word."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

NO_GROUPS = {"info", "mon_data", "mon_groups"}

_T = TypeVar("_T")

GONE = {errno.ENOENT, errno.ENODEV}
"""What the kernel answers of a group that was removed, the second where its file was open by then
(``kernfs_seq_start``)."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A resctrl tree."""

    root: Path

    @property
    def every_way(self) -> int:
        """The mask of all ways of an L3 cache."""
        return int((self.root / "info/L3/cbm_mask").read_text(), 16)

    @property
    def gaps_are_fine(self) -> bool:
        """Whether a mask may have gaps: Linux says so from 6.7 on."""
        file = self.root / "info/L3/sparse_masks"
        return file.exists() and file.read_text().strip() == "1"

    def groups(self) -> list[str]:
        """The control groups below the default group."""
        return sorted(name for name in os.listdir(self.root) if (self.root / name).is_dir() and name not in NO_GROUPS)

    def masks(self, group: str = "") -> dict[int, int]:
        """The group's L3 masks by cache id."""
        for line in (self.root / group / "schemata").read_text().splitlines():
            resource, _, values = line.strip().partition(":")
            if resource == "L3":
                return {int(cache): int(mask, 16) for cache, _, mask in (v.partition("=") for v in values.split(";"))}
        raise AssertionError(f"{group or '/'} has no L3 in its schemata")

    def values(self, resource: str, group: str = "") -> dict[int, str]:
        """What the group's schemata says of any resource, by cache id; nothing where it has no such line."""
        for line in (self.root / group / "schemata").read_text().splitlines():
            name, _, values = line.strip().partition(":")
            if name == resource:
                return {int(cache): value.strip() for cache, _, value in (v.partition("=") for v in values.split(";"))}
        return {}

    def mode(self, group: str) -> str:
        """The group's mode."""
        return (self.root / group / "mode").read_text().strip()

    def tasks(self, directory: str = "") -> set[int]:
        """The task ids of a group."""
        return set(map(int, (self.root / directory / "tasks").read_text().split()))

    def monitoring_groups(self, group: str = "") -> list[str]:
        """The monitoring groups of a control group."""
        return sorted(os.listdir(self.root / group / "mon_groups"))

    def _is_new(self, group: str) -> bool:
        """Whether it is one of ours that nobody is in yet: at first it has the ways that the kernel chose."""
        return group.startswith("vmqos.") and not self.tasks(group)

    def _if_there(self, read: Callable[[str], _T], group: str) -> _T | None:
        """What is read of a group; ``None`` where it is not there any more."""
        try:
            return read(group)
        except OSError as error:
            if error.errno not in GONE or (self.root / group).is_dir():
                raise
            return None

    def violations(self, exclusive: Iterable[str]) -> list[str]:
        """Where rules 1 to 3 of the allocation are broken, for VMs that run on every cache.

        A group that is removed meanwhile breaks none. Nor does what one reading finds and the next one does not: the
        files of some groups are not read at once, and the agent may change them meanwhile.

        :param exclusive: the groups of the exclusive VMs.
        """
        owners = list(exclusive)
        found = list(self._violations(owners))
        again = set(self._violations(owners)) if found else set()
        return [violation for violation in found if violation in again]

    def _violations(self, exclusive: Iterable[str]) -> Iterator[str]:
        """What one reading finds; see :meth:`violations`."""
        whole, gaps_are_fine = self.every_way, self.gaps_are_fine
        least = int((self.root / "info/L3/min_cbm_bits").read_text())
        read = {group: self._if_there(self.masks, group) for group in ("", *self.groups())}
        masks = {group: of_group for group, of_group in read.items() if of_group is not None}
        for group, of_group in masks.items():
            for cache, mask in of_group.items():
                shifted = mask // (mask & -mask) if mask else 0
                if mask & ~whole or mask.bit_count() < least or (shifted & (shifted + 1) and not gaps_are_fine):
                    yield f"{group or '/'} has the illegal mask {mask:x} on cache {cache}"
        for cache, mask in masks[""].items():
            if mask.bit_count() < 2:
                yield f"the default group has {mask:x} on cache {cache}, less than its floor"
        for owner in exclusive:
            for other, of_other in masks.items():
                shared = {cache: mask & of_other.get(cache, 0) for cache, mask in masks.get(owner, {}).items()}
                if other == owner or not any(shared.values()):
                    continue
                is_new, mode = self._if_there(self._is_new, other), self._if_there(self.mode, owner)
                if is_new is None or mode is None or (is_new and mode != "exclusive"):
                    continue
                for cache, ways in shared.items():
                    if ways:
                        yield f"{other or '/'} shares ways {ways:x} of cache {cache} with {owner}"
