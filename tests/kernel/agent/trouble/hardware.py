# SPDX-License-Identifier: Apache-2.0
"""The guest's machine as it really is: masks from the registers, tasks from the kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.trouble.seen import Cache, Seen
from tests.kernel.agent import eyes, groups
from tests.kernel.agent.registers import L3Registers

ENDED = "(ended)"
"""Stands for the group of a task that has ended."""


@dataclass(frozen=True, slots=True)
class KernelHardware:
    """See :class:`tests.campaign.trouble.seen.Hardware`.

    :param root: resctrl, mounted with the option ``debug``, which tells CLOSIDs.
    :param fewest_ways: the fewest ways of an L3 that a group can have.
    """

    root: Path
    registers: L3Registers
    fewest_ways: int

    def groups(self) -> dict[str, Seen]:
        """All control groups by name; one that is removed meanwhile is left out."""
        return dict(self._read())

    def _read(self) -> Iterator[tuple[str, Seen]]:
        for name in ("", *groups.names(self.root)):
            group = self.root / name
            try:
                masks = {(3, at): mask for at, mask in self.registers.masks(groups.closid(self.root, name)).items()}
                tasks = self.tasks_of(name) if name else frozenset[int]()
                cpus = frozenset(_numbers((group / "cpus_list").read_text())) if name else frozenset[int]()
                yield name, Seen(masks, {}, {}, tasks, cpus, tuple(sorted(os.listdir(group / "mon_groups"))))
            except OSError:
                continue

    def tasks_of(self, name: str) -> frozenset[int]:
        """The ids of the tasks of a control group.

        :raises OSError: if the group is gone.
        """
        return frozenset(map(int, (self.root / name / "tasks").read_text().split()))

    def group_of(self, tid: int) -> str:
        """The name of the control group of a task; empty for the default group."""
        try:
            return eyes.group_of(tid)[0]
        except (FileNotFoundError, ProcessLookupError):
            return ENDED

    def reach(self, cpus: frozenset[int]) -> set[Cache]:
        """The L3s that tasks on these CPUs fill."""
        return {(3, cache) for cache in self.registers.caches_of(cpus)}

    def is_alive(self, tid: int) -> bool:
        """Whether there is such a task."""
        return os.path.exists(f"/proc/{tid}")


def _numbers(text: str) -> Iterator[int]:
    """The numbers of a list such as ``0-2,5``."""
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
