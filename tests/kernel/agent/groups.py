# SPDX-License-Identifier: Apache-2.0
"""Control groups as the hardware has them, and which of them must not meet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.agent.registers import L3Registers

OURS = "vmqos."
CLASS = "vmqos.shared-"

READINGS = 20
"""How often groups that seem to break a promise are read again until they stay as they are."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One control group.

    :ivar name: empty for the default group.
    :ivar masks: by cache id, from the registers.
    :ivar guarded: whether the kernel itself keeps others out (mode ``exclusive``).
    :ivar caches: the ids of the caches that its tasks can run on, kernel threads aside; not looked for in the default
        group.
    """

    name: str
    masks: Mapping[int, int]
    guarded: bool
    caches: frozenset[int]

    @property
    def of_exclusive_vm(self) -> bool:
        """Whether it is the group of a VM with exclusive ways."""
        return self.name.startswith(OURS) and not self.name.startswith(CLASS)

    @property
    def foreign(self) -> bool:
        """Whether somebody else made it."""
        return bool(self.name) and not self.name.startswith(OURS)


def read(root: Path, registers: L3Registers) -> list[ControlGroup]:
    """All control groups; one that is removed meanwhile is left out.

    So is one that is pseudo-locked: its CLOSID is another group's by then (``rdtgroup_pseudo_lock_create``).

    :param root: resctrl, mounted with the option ``debug``, which tells CLOSIDs.
    """
    return [found for name in ("", *names(root)) if (found := _read(root, name, registers)) is not None]


def names(root: Path) -> list[str]:
    """The control groups but the default one."""
    return sorted(name for name in os.listdir(root) if (root / name / "ctrl_hw_id").exists())


def closid(root: Path, name: str) -> int:
    """The CLOSID of a control group."""
    return int((root / name / "ctrl_hw_id").read_text())


def _read(root: Path, name: str, registers: L3Registers) -> ControlGroup | None:
    group = root / name
    try:
        mode = (group / "mode").read_text().strip()
        if mode == "pseudo-locked":
            return None
        return ControlGroup(
            name,
            registers.masks(closid(root, name)),
            guarded=mode == "exclusive",
            caches=registers.caches_of(_cpus(group / "tasks")) if name else frozenset(),
        )
    except (FileNotFoundError, OSError):
        return None


def _cpus(tasks: Path) -> Iterator[int]:
    """The CPUs that these tasks can run on, but for kernel threads.

    A kernel thread that works for a VM (``kvm-pit``) runs anywhere. Where its VM can't run, it shares the host's ways.
    """
    for tid in tasks.read_text().split():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if Path(f"/proc/{tid}/cmdline").read_bytes():
                yield from os.sched_getaffinity(int(tid))


@dataclass(frozen=True, slots=True)
class Broken:
    """Ways of an exclusive VM that somebody else can fill.

    :ivar group: the control group of the VM.
    :ivar cache: the id of a cache that the VM can run on.
    :ivar other: the other control group; empty for the default one.
    """

    group: str
    cache: int
    other: str
    ways: int

    def __str__(self) -> str:
        return f"ways {self.ways:x} of cache {self.cache}: {self.group} and {self.other or '/'}"


def broken_promises(groups: Iterable[ControlGroup], promised: Callable[[ControlGroup], bool]) -> Iterator[Broken]:
    """Where somebody else can fill a way of an exclusive VM, on a cache that it runs on.

    Where the kernel does not guard a VM's ways (it can't on machines with L2 allocation, say), two things are no fault
    of the agent's: a foreign group that somebody put in the way, and a new group of ours, without any task yet, that
    still has the ways that the kernel chose.

    :param promised: whether the VM of a group still wants its ways for itself; asked only where it has not.
    """
    everybody = list(groups)
    for own in everybody:
        for other in everybody:
            if other is own or not own.of_exclusive_vm:
                continue
            if not own.guarded and other.name and (other.foreign or not other.caches):
                continue
            for cache in own.caches:
                both = own.masks[cache] & other.masks[cache]
                if both and promised(own):
                    yield Broken(own.name, cache, other.name, both)


def broken_now(
    root: Path,
    registers: L3Registers,
    promised: Callable[[ControlGroup], bool],
    seen: Iterable[ControlGroup] | None = None,
) -> list[Broken]:
    """What of :func:`broken_promises` was so at one moment, while groups may change.

    The masks and tasks of some groups are not read at once: a group that got its ways and then its tasks between two
    reads seems to have had tasks with the ways before. What two readings find alike in both groups was so in between.

    :param seen: what :func:`read` has found just now; ``None`` has it read.
    :raises TimeoutError: if groups seem broken, but never stay as they are for two readings.
    """
    before = _by_name(read(root, registers) if seen is None else seen)
    for _ in range(READINGS):
        if not (broken := list(broken_promises(before.values(), promised))):
            return []
        now = _by_name(read(root, registers))
        if sure := [one for one in broken if all(now.get(name) == before[name] for name in (one.group, one.other))]:
            return sure
        before = now
    raise TimeoutError(f"in {READINGS} readings no two are alike: {list(map(str, broken))}")


def _by_name(groups: Iterable[ControlGroup]) -> dict[str, ControlGroup]:
    return {group.name: group for group in groups}
