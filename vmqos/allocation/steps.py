# SPDX-License-Identifier: Apache-2.0
"""The order of the steps: between any two of them, no way of an exclusive VM is in another group's mask (rule 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vmqos.allocation import caches, detours
from vmqos.allocation.board import Board
from vmqos.allocation.line import runs
from vmqos.allocation.model import CreateGroup, RemoveGroup, SetExclusive, Step, WriteMasks, WriteThrottles
from vmqos.allocation.target import Target
from vmqos.allocation.world import World
from vmqos.group_names import DEFAULT_GROUP
from vmqos.resctrl.bitmask import CapacityBitmask

_DETOURS = 64
"""How often groups may step aside on one cache. Each time brings a mask to its place, unless two groups take turns."""


class NoSafeOrder(Exception):
    """The masks of a cache can't be brought to their places without an overlap.

    :param cache: the cache (:mod:`vmqos.allocation.caches`).
    """

    def __init__(self, cache: int) -> None:
        super().__init__(f"no safe order of steps on L{caches.level(cache)} cache {caches.id_of(cache)}")
        self.cache = cache


def prepare(world: World, target: Target) -> tuple[Step, ...]:
    """The steps that lead from the world to the target.

    * Guards (mode ``exclusive``) are taken off first where the target has none, and put on last. A guard on ways that
      other groups have too is also taken off first. When a cache comes online, the kernel opens all of its ways to
      every group (``domain_setup_ctrlval``), and because of the guard it would refuse every write there.
    * A mask that is ready to be written is written, and masks that do not grow come first. Where no mask is ready, a
      group makes way for a while.
    * Groups of VMs are created when the existing groups are in place, which need the room until then. Classes are
      created last: if the plan is interrupted, the next plan takes an existing class for a promise, and this promise
      must not forbid what this plan lets in.
    * Limits of bandwidth take nothing from other groups, and come after all masks.

    :raises NoSafeOrder: if there is no safe order, or none was found.
    """
    board = Board(world, target)
    steps: list[Step] = []
    detours_left = _DETOURS * len(world.lines)
    for name in world.groups:
        if name in board.guarded and (
            name not in target.guarded or _has_company(world, name) or _passes_io(world, target, name)
        ):
            steps.append(SetExclusive(name, False))
            board.guarded.discard(name)
    for cache, writes in target.routes.items():
        steps += _follow(board, cache, writes)
    while board.unfinished():
        write = _next_write(board)
        if write is not None:
            steps += _write(board, *write)
            continue
        cache, asides = detours.make_way(board)
        detours_left -= 1
        if not asides or not detours_left:
            raise NoSafeOrder(cache)
        for name, mask in asides:
            steps += _write(board, name, {cache: mask})
    # Where no cache has ways to give, a group has no mask to be created for.
    steps += [CreateGroup(name) for name in target.created if not board.exists(name)]
    steps += _divide(world, target, steps)
    steps += _throttle(world, target)
    steps += [SetExclusive(name, True) for name in target.masks if name in target.guarded - board.guarded]
    return tuple(steps)


def retire(target: Target) -> tuple[Step, ...]:
    """The steps that remove what no VM needs; its ways are given away already."""
    return tuple(RemoveGroup(name) for name in target.retired)


def _follow(board: Board, cache: int, writes: Sequence[tuple[str, int]]) -> Iterator[Step]:
    """The writes that were found for a cache. A group that shares ways first moves to ways of the default group."""
    for name, mask in writes:
        for other in list(board.in_the_way(name, cache, mask)):
            if board.is_in_force(other, cache):
                raise NoSafeOrder(cache)
            default = board.masks[DEFAULT_GROUP][cache]
            size = min(default.bit_count(), max(board.least(other, cache), board.masks[other][cache].bit_count()))
            part = board.world.lines[cache].best_part(default, size, (board.target.masks[other][cache],))
            if other == DEFAULT_GROUP or not part or part & mask:
                raise NoSafeOrder(cache)
            yield from _write(board, other, {cache: part})
        if board.masks[name].get(cache) != mask:
            yield from _write(board, name, {cache: mask})


def _next_write(board: Board) -> tuple[str, dict[int, int]] | None:
    """A group, and its masks that can be written now; ``None`` where no group has any."""
    best: tuple[bool, bool] | None = None
    found: tuple[str, dict[int, int]] | None = None
    for name in board.order:
        missing = board.missing(name)
        ready = {cache: mask for cache, mask in missing.items() if board.is_free(name, cache, mask)}
        part = len(ready) < len(missing)
        if ready and (board.exists(name) or not part):
            rank = (board.grows(name, ready), part)
            if best is None or rank < best:
                best, found = rank, (name, ready)
    return found


def _write(board: Board, name: str, masks: dict[int, int]) -> Iterator[Step]:
    """Write the masks; the group is created first where it does not exist, and its first write names every cache."""
    if not board.exists(name):
        yield from _unguard_for_mkdir(board)
        yield CreateGroup(name)
    board.write(name, masks)
    yield _masks(board.world, board.target, name, masks)


def _masks(world: World, target: Target, name: str, masks: Mapping[int, int]) -> WriteMasks:
    ordered = dict(sorted(masks.items()))
    written = {cache: CapacityBitmask(mask) for cache, mask in ordered.items()}
    return WriteMasks(name, written, target.splits(world, name, ordered))


def _divide(world: World, target: Target, steps: Sequence[Step]) -> Iterator[Step]:
    """Write the parts for code and data that are not right yet: they take nothing from other groups."""
    now = {name: dict(group.splits) for name, group in world.groups.items() if name in target.masks}
    for step in steps:
        if isinstance(step, WriteMasks):
            now.setdefault(step.group, {}).update(step.splits)
    for name, masks in target.masks.items():
        wanted = target.splits(world, name, masks)
        changes = {cache: masks[cache] for cache, parts in wanted.items() if now.get(name, {}).get(cache) != parts}
        if changes:
            yield _masks(world, target, name, changes)


def _throttle(world: World, target: Target) -> Iterator[Step]:
    """Write the limits that are not right yet; a group that is created has none (``rdtgroup_init_mba``)."""
    resource = world.capabilities.memory_bandwidth
    if resource is None:
        return
    unlimited = resource.unit.unlimited
    for name, throttles in target.throttles.items():
        now = world.groups[name].throttles if name in world.groups else {}
        changes = {
            cache: value for cache, value in throttles.items() if min(now.get(cache, unlimited), unlimited) != value
        }
        if changes:
            yield WriteThrottles(name, changes)


def _has_company(world: World, name: str) -> bool:
    """Whether any other group has ways that this group has."""
    others = [other for other in world.groups if other != name]
    return any(mask & world.ways(others, cache) for cache, mask in world.masks[name].items())


def _passes_io(world: World, target: Target, name: str) -> bool:
    """Whether a write on the way gives the group ways of I/O, which the kernel refuses to a guarded group."""
    return any(
        mask & world.lines[cache].shareable
        for cache, writes in target.routes.items()
        for group, mask in writes
        if group == name
    )


def _unguard_for_mkdir(board: Board) -> Iterator[Step]:
    """Take off guards that would leave a new group too few ways for a legal mask: mkdir would fail with ENOSPC."""
    for name in sorted(board.guarded):
        if all(_kernel_gives(board, cache) >= line.fewest for cache, line in board.world.lines.items()):
            return
        board.guarded.discard(name)
        yield SetExclusive(name, False)


def _kernel_gives(board: Board, cache: int) -> int:
    """How many ways the kernel gives a new group: the first run of ways that no guarded group has.

    ``__init_one_rdt_domain`` and ``cbm_ensure_valid`` in the kernel's resctrl.
    """
    guarded = {name for name, group in board.world.groups.items() if group.exclusive and name not in board.masks}
    held = board.world.ways(guarded, cache) | board.ways(board.guarded, cache)
    shared = board.ways(board.masks.keys() - board.guarded, cache)
    line = board.world.lines[cache]
    _, length = next(runs(line.every & ~held | shared | line.shareable), (0, 0))
    return length
