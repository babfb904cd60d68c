# SPDX-License-Identifier: Apache-2.0
"""Ways for the victim: lent by the default group, held in a group of our own, and given back whatever happens.

That is what the agent does for a VM with ``hw:cache_ways``: the ways go to one group, and the default group, where the
neighbour is with everything else, loses them. What was done can be read from resctrl alone: the group's name says which
ways of which cache the default group gets back. So every program that finds such a group can put everything right.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from vmqos.bench import exceptions
from vmqos.group_names import BENCH_PREFIX
from vmqos.resctrl import exceptions as resctrl_exceptions
from vmqos.resctrl import groups, info, pseudo_lock
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.groups import ControlGroup

DEFAULT = ""
"""The name of the default control group."""
NO_WAYS = CapacityBitmask()
LIMBO = 30.0
"""Seconds to wait for an RMID: one that was used lately is free again only when its data have left the cache."""

_NAME = re.compile(rf"{re.escape(BENCH_PREFIX)}([0-9]{{1,9}})-([0-9a-f]{{1,16}})")


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's choices, which the experiment keeps to as the agent does.

    :ivar floor: how many ways the default group keeps (``[allocation] default_ways_min``).
    :ivar reserved: ways that no group gets (``[allocation] reserved_ways``).
    :ivar use_shareable: whether ways that devices fill too may be taken (``[allocation] use_shareable_ways``).
    """

    floor: int = 2
    reserved: CapacityBitmask = NO_WAYS
    use_shareable: bool = False

    @classmethod
    def of(cls, floor: int, reserved: str, use_shareable: bool) -> Policy:
        """The operator's choices from the values of the configuration: ``reserved`` is hexadecimal."""
        return cls(floor, CapacityBitmask.parse(reserved), use_shareable)


@dataclass(frozen=True, slots=True)
class Loan:
    """Ways of one cache that the default group lends.

    :ivar cache: the cache's id.
    :ivar mask: its ways.
    """

    cache: int
    mask: CapacityBitmask

    @property
    def group(self) -> str:
        """The name of the group that holds them."""
        return f"{BENCH_PREFIX}{self.cache}-{self.mask}"

    @classmethod
    def of_group(cls, name: str) -> Loan | None:
        """What a group of that name holds; ``None`` if the name is not one of ours."""
        found = _NAME.fullmatch(name)
        return cls(int(found[1]), CapacityBitmask.parse(found[2])) if found else None


def l3_resources(capabilities: Capabilities) -> list[CacheResource]:
    """The L3 as resctrl has it: one resource, or two where it is mounted with ``cdp``."""
    return [cache for cache in capabilities.caches.values() if cache.level == 3]


def choose(
    capabilities: Capabilities,
    found: Collection[ControlGroup],
    locked: Mapping[str, Mapping[int, CapacityBitmask]],
    cache: int,
    wanted: int | None,
    policy: Policy,
    most: int = 4,
) -> Loan:
    """Choose ways that the default group alone holds, so that it keeps enough in one piece.

    :param found: every control group.
    :param locked: the pseudo-locked ways by resource and cache.
    :param wanted: how many; ``None`` for as many as can be lent, ``most`` at most.
    :raises vmqos.bench.exceptions.TooFewWays: if so many can't be lent.
    """
    sizes = [wanted] if wanted is not None else list(range(most, 0, -1))
    for size in sizes:
        loan = _find(capabilities, found, locked, cache, size, policy)
        if loan is not None:
            return loan
    total = max(resource.way_count for resource in l3_resources(capabilities))
    lendable = next(
        (n for n in range(total, 0, -1) if _find(capabilities, found, locked, cache, n, policy) is not None), 0
    )
    holders = "; ".join(
        f"{group.name or 'the default group'} has {group.masks(resource.name)[cache]} of {resource.name}"
        for resource in l3_resources(capabilities)
        for group in found
        if cache in group.masks(resource.name)
    )
    floor = max(policy.floor, 1)
    needed = "1 way" if sizes[-1] == 1 else f"{sizes[-1]} neighbouring ways"
    raise exceptions.TooFewWays(wanted=needed, cache=cache, floor=floor, most=lendable, found=f"Masks: {holders}")


def _find(
    capabilities: Capabilities,
    found: Collection[ControlGroup],
    locked: Mapping[str, Mapping[int, CapacityBitmask]],
    cache: int,
    size: int,
    policy: Policy,
) -> Loan | None:
    resources = l3_resources(capabilities)
    highest = max(resource.cbm_mask.bits.bit_length() for resource in resources)
    for start in range(highest - size + 1):
        mask = CapacityBitmask.run(start, size)
        if all(_can_lend(r, found, locked.get(r.name, {}), cache, mask, policy) for r in resources):
            return Loan(cache, mask)
    return None


def _can_lend(
    resource: CacheResource,
    found: Collection[ControlGroup],
    locked: Mapping[int, CapacityBitmask],
    cache: int,
    mask: CapacityBitmask,
    policy: Policy,
) -> bool:
    taboo = policy.reserved | locked.get(cache, NO_WAYS)
    if not policy.use_shareable:
        taboo |= resource.filled_by_devices.get(cache, NO_WAYS)
    default = NO_WAYS
    for group in found:
        ways = group.masks(resource.name).get(cache, NO_WAYS)
        if group.name == DEFAULT:
            default = ways
        else:
            taboo |= ways
    left = default - mask
    return (
        mask.count >= resource.min_cbm_bits
        and not mask - default
        and not mask.overlaps(taboo)
        and left.count >= max(policy.floor, resource.min_cbm_bits, 1)
        and (resource.sparse_masks or left.is_contiguous)
    )


def look(
    filesystem: Filesystem, cache: int, wanted: int | None, policy: Policy
) -> tuple[Loan, Capabilities, list[ControlGroup]]:
    """See what could be lent now; the caller holds the lock.

    :raises vmqos.bench.exceptions.NoL3Allocation: if the L3 can't be partitioned.
    :raises vmqos.bench.exceptions.TooFewWays: if so many can't be lent.
    :raises vmqos.bench.exceptions.TooFewClosids: if there can't be one more group.
    """
    capabilities = info.read_capabilities(filesystem)
    resources = l3_resources(capabilities)
    if not resources:
        raise exceptions.NoL3Allocation(path=filesystem.root)
    found = groups.list_control_groups(filesystem)
    locked = {resource.name: info.read_pseudo_locked(filesystem, resource.name) for resource in resources}
    loan = choose(capabilities, found, locked, cache, wanted, policy)
    if sum(group.mode != pseudo_lock.LOCKED for group in found) >= capabilities.num_closids:
        raise exceptions.TooFewClosids(total=capabilities.num_closids)
    return loan, capabilities, found


def take(
    filesystem: Filesystem,
    loan: Loan,
    policy: Policy,
    enter: Callable[[str], None],
    timeout: float | None,
    limbo: float = LIMBO,
) -> Loan:
    """Lend ways to a group of our own.

    Another program may have changed the groups since ``loan`` was chosen; then as many other ways are taken.

    :param enter: puts the victim into the group of that name.
    :param timeout: seconds to wait for the lock.
    :param limbo: seconds to wait for an RMID.
    :returns: what was lent.
    :raises vmqos.bench.exceptions.BenchError: if there are not ways or groups enough any more.
    :raises vmqos.resctrl.exceptions.ResctrlError: if the kernel refuses; :func:`give_back` puts right what was done.
    """
    end = time.monotonic() + limbo
    while True:
        try:
            with filesystem.lock(exclusive=True, timeout=timeout):
                return _take(filesystem, loan, policy, enter)
        except resctrl_exceptions.RmidsInLimbo:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _take(filesystem: Filesystem, loan: Loan, policy: Policy, enter: Callable[[str], None]) -> Loan:
    loan, capabilities, found = look(filesystem, loan.cache, loan.mask.count, policy)
    default = next(group for group in found if group.name == DEFAULT)
    groups.create(filesystem, loan.group)
    for resource in l3_resources(capabilities):
        masks = default.masks(resource.name)
        groups.write_values(filesystem, loan.group, resource.name, {**masks, loan.cache: loan.mask})
        groups.write_values(filesystem, DEFAULT, resource.name, {loan.cache: masks[loan.cache] - loan.mask})
    enter(loan.group)
    return loan


def give_back(filesystem: Filesystem, timeout: float | None) -> list[str]:
    """Remove every group of an experiment, those of one that was killed too; the default group gets its ways back.

    The ways first: once the group is gone, nothing tells any more whose they were.

    :returns: the names of the groups that were removed.
    :raises vmqos.resctrl.exceptions.ResctrlError: if the kernel refuses.
    """
    with filesystem.lock(exclusive=True, timeout=timeout):
        loans = [loan for name in filesystem.directories() if (loan := Loan.of_group(name))]
        if not loans:
            return []
        resources = l3_resources(info.read_capabilities(filesystem))
        for loan in loans:
            found = groups.list_control_groups(filesystem)
            for resource in resources:
                _grow_default(filesystem, resource, found, loan)
            groups.remove(filesystem, loan.group)
        return [loan.group for loan in loans]


def _grow_default(filesystem: Filesystem, resource: CacheResource, found: Collection[ControlGroup], loan: Loan) -> None:
    default = next(group for group in found if group.name == DEFAULT).masks(resource.name).get(loan.cache)
    if default is None:
        return
    back = loan.mask
    for group in found:
        if group.name not in (DEFAULT, loan.group):
            back -= group.masks(resource.name).get(loan.cache, NO_WAYS)
    grown = default | back
    if not resource.sparse_masks:
        # An agent may have moved the default group away meanwhile; it also brings the ways back.
        grown = next((run for run in grown.runs() if run.overlaps(default)), default)
    if grown != default:
        groups.write_values(filesystem, DEFAULT, resource.name, {loan.cache: grown})


def cpus_of_others(filesystem: Filesystem) -> str:
    """The CPUs whose tasks of the default group are in another one, lists in the kernel's format joined by commas."""
    found = []
    for name in groups.list_names(filesystem):
        if name != DEFAULT:
            try:
                found.append(filesystem.read(name, "cpus_list").strip())
            except resctrl_exceptions.ResctrlError:
                continue
    return ",".join(filter(None, found))
