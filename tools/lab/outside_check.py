# SPDX-License-Identifier: Apache-2.0
"""Whether the promises are kept, read from resctrl's files and /proc alone.

It shares no code with vmqos: what it finds is not the agent's word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Promise:
    """What one running VM was promised.

    :ivar ways: L3 ways on each cache that the VM can run on; 0 for a VM that asks for nothing.
    :ivar exclusive: whether no other VM or process may fill them.
    :ivar tasks: the task ids of its processes, with their names.
    """

    uuid: str
    name: str
    ways: int
    exclusive: bool
    tasks: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    good: bool
    text: str


@dataclass(frozen=True, slots=True)
class _Tree:
    """Every control group's L3 masks by cache id, and every group's tasks; the default group's name is empty."""

    masks: Mapping[str, Mapping[int, int]]
    tasks: Mapping[str, frozenset[int]]


def check(root: Path, promises: Sequence[Promise], caches: frozenset[int]) -> list[Finding]:
    """Look at everything that was promised.

    :param root: where resctrl is mounted.
    :param caches: the L3s that have a CPU the VMs can run on: the promises hold there.
    """
    tree = _read(root)
    return [
        *_check_masks_are_legal(root, tree),
        *(finding for promise in promises if promise.exclusive for finding in _check_exclusive(promise, tree, caches)),
        *(finding for promise in promises if promise.ways for finding in _check_size(promise, tree, caches)),
        *(_check_tasks(promise, tree) for promise in promises),
    ]


def caches_with_cpus(sysfs: Path) -> frozenset[int]:
    """The ids of the L3s that this machine's CPUs have (``cpu*/cache/index*`` below ``sysfs``)."""
    levels = ((path, path.with_name("id")) for path in sysfs.glob("cpu[0-9]*/cache/index[0-9]*/level"))
    return frozenset(int(number.read_text()) for level, number in levels if level.read_text().strip() == "3")


def where_tasks_are(root: Path, tasks: Iterable[int]) -> dict[int, str]:
    """The control group that each of these tasks is in; the default group's name is empty."""
    tree = _read(root)
    return {task: group for group in tree.masks for task in tree.tasks[group] if task in set(tasks)}


def control_group(promise: Promise, groups: Mapping[str, object]) -> str | None:
    """The control group that the promise's tasks belong in; ``None`` where there is none."""
    if not promise.ways:
        return ""
    if promise.exclusive:
        name = f"vmqos.{promise.uuid}"
        return name if name in groups else None
    return next((name for name in groups if re.fullmatch(rf"vmqos\.shared-ways0*{promise.ways}", name)), None)


def _read(root: Path) -> _Tree:
    masks, tasks = {}, {}
    for directory in (root, *(path for path in sorted(root.iterdir()) if (path / "schemata").exists())):
        name = "" if directory == root else directory.name
        masks[name] = _l3_masks((directory / "schemata").read_text())
        tasks[name] = _ids(directory / "tasks")
        for group in sorted((directory / "mon_groups").iterdir()):
            tasks[f"{name}/mon_groups/{group.name}".lstrip("/")] = _ids(group / "tasks")
    return _Tree(masks, tasks)


def _l3_masks(schemata: str) -> dict[int, int]:
    for line in schemata.splitlines():
        resource, _, values = line.strip().partition(":")
        if resource == "L3":
            return {int(cache): int(mask, 16) for cache, mask in (pair.split("=") for pair in values.split(";"))}
    return {}


def _ids(path: Path) -> frozenset[int]:
    return frozenset(int(line) for line in path.read_text().split())


def _check_masks_are_legal(root: Path, tree: _Tree) -> Iterator[Finding]:
    info = root / "info" / "L3"
    every = int((info / "cbm_mask").read_text(), 16)
    fewest = int((info / "min_cbm_bits").read_text())
    sparse = (info / "sparse_masks").exists() and (info / "sparse_masks").read_text().strip() == "1"
    for group, masks in tree.masks.items():
        for cache, mask in masks.items():
            runs = len([run for run in f"{mask:b}".split("0") if run])
            if mask & ~every or mask.bit_count() < fewest or (runs > 1 and not sparse):
                yield Finding(False, f"{group or 'the default group'} has the illegal mask {mask:x} on cache {cache}")
    for cache, mask in tree.masks[""].items():
        if mask.bit_count() < 2:
            yield Finding(False, f"the default group has fewer than 2 ways on cache {cache}: {mask:x}")
    yield Finding(
        True,
        f"{sum(map(len, tree.masks.values()))} masks of {len(tree.masks)} groups looked at: the "
        f"machine's ways are {every:x}, a mask has {fewest} or more, gaps are "
        f"{'fine' if sparse else 'forbidden'}",
    )


def _check_exclusive(promise: Promise, tree: _Tree, caches: frozenset[int]) -> Iterator[Finding]:
    own = control_group(promise, tree.masks)
    if own is None:
        yield Finding(False, f"{promise.name} has no control group vmqos.{promise.uuid}")
        return
    overlaps = [
        f"way mask {mask & masks[cache]:x} of cache {cache} with {group or 'the default group'}"
        for group, masks in tree.masks.items()
        for cache, mask in tree.masks[own].items()
        if group != own and cache in caches and cache in masks and mask & masks[cache]
    ]
    if overlaps:
        yield Finding(False, f"{promise.name} shares its exclusive ways: {'; '.join(overlaps)}")
    else:
        others = len(tree.masks) - 1
        yield Finding(True, f"{promise.name}: none of its ways is in any mask of the {others} other groups")


def _check_size(promise: Promise, tree: _Tree, caches: frozenset[int]) -> Iterator[Finding]:
    group = control_group(promise, tree.masks)
    masks = {cache: mask for cache, mask in tree.masks[group].items() if cache in caches} if group else {}
    text = ", ".join(f"{mask:x} on cache {cache}" for cache, mask in masks.items())
    good = bool(masks) and all(mask.bit_count() == promise.ways for mask in masks.values())
    yield Finding(good, f"{promise.name}: promised {promise.ways} ways a cache, has {text or 'no group'}")


def _check_tasks(promise: Promise, tree: _Tree) -> Finding:
    group = control_group(promise, tree.masks)
    if group is None or not promise.tasks:
        return Finding(False, f"{promise.name} has {'no tasks' if group is not None else 'no control group'}")
    wrong = [f"{name} ({task})" for task, name in promise.tasks.items() if task not in tree.tasks[group]]
    if wrong:
        return Finding(False, f"{promise.name}: not in {group or 'the default group'}: {', '.join(wrong)}")
    where = f"{group}/tasks" if group else "the default group's tasks"
    return Finding(True, f"{promise.name}: all {len(promise.tasks)} tasks are in {where}")
