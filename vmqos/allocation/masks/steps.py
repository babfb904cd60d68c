# SPDX-License-Identifier: Apache-2.0
"""The order of the steps: between any two of them, no way of an exclusive VM is in another group's mask (rule 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vmqos.allocation import caches
from vmqos.allocation.cache_ways import runs
from vmqos.allocation.masks import detours
from vmqos.allocation.masks.progress import Progress
from vmqos.allocation.masks.target import Target
from vmqos.allocation.model import CreateGroup, SetExclusive, Step, WriteMasks, WriteThrottles
from vmqos.allocation.planner_input import PlannerInput
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


def prepare(inputs: PlannerInput, target: Target) -> tuple[Step, ...]:
    """The steps that lead from the groups as they are to the target.

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
    progress = Progress(inputs, target)
    steps: list[Step] = []
    detours_left = _DETOURS * len(inputs.cache_ways)
    for name in inputs.groups:
        if name in progress.guarded and (
            name not in target.guarded or _has_company(inputs, name) or _passes_io(inputs, target, name)
        ):
            steps.append(SetExclusive(name, False))
            progress.guarded.discard(name)
    for cache, writes in target.routes.items():
        steps += _follow(progress, cache, writes)
    while any(progress.missing.values()):
        write = _next_write(progress)
        if write is not None:
            steps += _write(progress, *write)
            continue
        cache, asides = detours.make_way(progress)
        detours_left -= 1
        if not asides or not detours_left:
            raise NoSafeOrder(cache)
        for name, mask in asides:
            steps += _write(progress, name, {cache: mask})
    # Where no cache has ways to give, a group has no mask to be created for.
    steps += [CreateGroup(name) for name in target.created if name not in progress.masks]
    if inputs.capabilities.split_levels:
        steps += _divide(inputs, target, steps)
    steps += _throttle(inputs, target)
    steps += [SetExclusive(name, True) for name in target.masks if name in target.guarded - progress.guarded]
    return tuple(steps)


def _follow(progress: Progress, cache: int, writes: Sequence[tuple[str, int]]) -> Iterator[Step]:
    """The writes that were found for a cache. A group that shares ways first moves to ways of the default group."""
    for name, mask in writes:
        for other in progress.in_the_way(name, cache, mask):
            if progress.is_in_force(other, cache):
                raise NoSafeOrder(cache)
            default = progress.masks[DEFAULT_GROUP][cache]
            size = min(default.bit_count(), max(progress.least(other, cache), progress.masks[other][cache].bit_count()))
            part = progress.inputs.cache_ways[cache].best_part(default, size, (progress.target.masks[other][cache],))
            if other == DEFAULT_GROUP or not part or part & mask:
                raise NoSafeOrder(cache)
            yield from _write(progress, other, {cache: part})
        if progress.masks[name].get(cache) != mask:
            yield from _write(progress, name, {cache: mask})


def _next_write(progress: Progress) -> tuple[str, dict[int, int]] | None:
    """A group, and its masks that can be written now; ``None`` where no group has any."""
    best: tuple[bool, bool, bool] | None = None
    found: tuple[str, dict[int, int]] | None = None
    for name in progress.order:
        if progress.waits(name):
            continue
        missing, now = progress.missing[name], progress.masks.get(name)
        ready = {cache: mask for cache, mask in missing.items() if not progress.in_the_way(name, cache, mask)}
        if name == DEFAULT_GROUP and now is not None:
            shorter = {
                cache: mask for cache, mask in ready.items() if mask.bit_count() <= now.get(cache, 0).bit_count()
            }
            ready = shorter or ready
        part = len(ready) < len(missing)
        if ready and (now is not None or not part):
            has = now or {}
            grows = any(mask.bit_count() > has.get(cache, 0).bit_count() for cache, mask in ready.items())
            # The default group shrinks before and grows after the groups that only have what it has. So these have all
            # of its ways at every moment, and an agent that starts anew sees that this is no grant
            # (vmqos.allocation.rights.earlier).
            rank = grows, grows and name == DEFAULT_GROUP, part
            if best is None or rank < best:
                best, found = rank, (name, ready)
    return found


def _write(progress: Progress, name: str, masks: dict[int, int]) -> Iterator[Step]:
    """Write the masks; the group is created first where it does not exist, and its first write names every cache."""
    if name not in progress.masks:
        if progress.guarded:
            yield from _unguard_for_mkdir(progress)
        yield CreateGroup(name)
    progress.write(name, masks)
    yield _masks(progress.inputs, progress.target, name, masks)


def _masks(inputs: PlannerInput, target: Target, name: str, masks: Mapping[int, int]) -> WriteMasks:
    ordered = dict(sorted(masks.items()))
    written = {cache: CapacityBitmask(mask) for cache, mask in ordered.items()}
    splits = target.splits(inputs, name, ordered) if inputs.capabilities.split_levels else {}
    return WriteMasks(name, written, splits)


def _divide(inputs: PlannerInput, target: Target, steps: Sequence[Step]) -> Iterator[Step]:
    """Write the parts for code and data that are not right yet: they take nothing from other groups."""
    now = {name: dict(group.splits) for name, group in inputs.groups.items() if name in target.masks}
    for step in steps:
        if isinstance(step, WriteMasks):
            now.setdefault(step.group, {}).update(step.splits)
    for name, masks in target.masks.items():
        wanted = target.splits(inputs, name, masks)
        changes = {cache: masks[cache] for cache, parts in wanted.items() if now.get(name, {}).get(cache) != parts}
        if changes:
            yield _masks(inputs, target, name, changes)


def _throttle(inputs: PlannerInput, target: Target) -> Iterator[Step]:
    """Write the limits that are not right yet; a group that is created has none (``rdtgroup_init_mba``)."""
    resource = inputs.capabilities.memory_bandwidth
    if resource is None:
        return
    unlimited = resource.unit.unlimited
    for name, throttles in target.throttles.items():
        now = inputs.groups[name].throttles if name in inputs.groups else {}
        changes = {
            cache: value for cache, value in throttles.items() if min(now.get(cache, unlimited), unlimited) != value
        }
        if changes:
            yield WriteThrottles(name, changes)


def _has_company(inputs: PlannerInput, name: str) -> bool:
    """Whether any other group has ways that this group has."""
    others = [other for other in inputs.groups if other != name]
    return any(mask & inputs.ways(others, cache) for cache, mask in inputs.masks[name].items())


def _passes_io(inputs: PlannerInput, target: Target, name: str) -> bool:
    """Whether a write on the way gives the group ways of I/O, which the kernel refuses to a guarded group."""
    return any(
        mask & inputs.cache_ways[cache].shareable
        for cache, writes in target.routes.items()
        for group, mask in writes
        if group == name
    )


def _unguard_for_mkdir(progress: Progress) -> Iterator[Step]:
    """Take off guards that would leave a new group too few ways for a legal mask: mkdir would fail with ENOSPC."""
    for name in sorted(progress.guarded):
        if all(
            _kernel_gives(progress, cache) >= cache_ways.fewest
            for cache, cache_ways in progress.inputs.cache_ways.items()
        ):
            return
        progress.guarded.discard(name)
        yield SetExclusive(name, False)


def _kernel_gives(progress: Progress, cache: int) -> int:
    """How many ways the kernel gives a new group: the first run of ways that no guarded group has.

    ``__init_one_rdt_domain`` and ``cbm_ensure_valid`` in the kernel's resctrl.
    """
    guarded = {name for name, group in progress.inputs.groups.items() if group.exclusive and name not in progress.masks}
    held = progress.inputs.ways(guarded, cache) | progress.ways(progress.guarded, cache)
    shared = progress.ways(progress.masks.keys() - progress.guarded, cache)
    cache_ways = progress.inputs.cache_ways[cache]
    _, length = next(runs(cache_ways.every & ~held | shared | cache_ways.shareable), (0, 0))
    return length
