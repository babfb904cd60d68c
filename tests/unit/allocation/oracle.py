# SPDX-License-Identifier: Apache-2.0
"""The rules of allocation, judged after every single step of a plan.

The oracle shares no code with the planner. From :mod:`vmqos.allocation` it takes the values that go in and come out,
and nothing else. Ways are sets of numbers here, so that no error of a bitmask is made twice. The kernel is a model of
its own, too: what it refuses, and what it gives a new group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from tests.unit.allocation.brute_force import Cache, can_be_reached
from vmqos.allocation import (
    Allocation,
    CreateGroup,
    Group,
    Layout,
    Plan,
    Policy,
    PromiseState,
    RemoveGroup,
    Request,
    SetExclusive,
    Split,
    Step,
    WriteMasks,
    WriteThrottles,
)
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.group_names import Owner
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit, CacheResource, Capabilities

Ways = frozenset[int]
NOTHING: Ways = frozenset()
PREFIX = "vmqos."


class Broken(Exception):
    """A rule is broken.

    :param rule: its number; 0 for what the kernel refuses, 16 for a verdict that is not true.
    """

    def __init__(self, rule: int, what: str) -> None:
        super().__init__(f"rule {rule}: {what}")
        self.rule = rule


def expect(holds: bool, rule: int, what: object) -> None:
    """:raises Broken: if something does not hold."""
    if not holds:
        raise Broken(rule, str(what))


def numbers(mask: CapacityBitmask) -> Ways:
    """The ways of a mask."""
    return frozenset(way for way in range(64) if mask.bits >> way & 1)


def mask_of(ways: Iterable[int]) -> CapacityBitmask:
    """A mask of these ways."""
    return CapacityBitmask(sum(1 << way for way in ways))


def stretches(ways: Iterable[int]) -> list[list[int]]:
    """The ways in pieces without gaps, the lowest first."""
    found: list[list[int]] = []
    for way in sorted(ways):
        if found and found[-1][-1] == way - 1:
            found[-1].append(way)
        else:
            found.append([way])
    return found


def owner(name: str) -> Owner:
    """Whose a group is."""
    if not name:
        return Owner.DEFAULT
    if name.startswith(PREFIX + "shared-"):
        return Owner.CLASS
    return Owner.VM if name.startswith(PREFIX) else Owner.FOREIGN


def own_group(uuid: str) -> str:
    """The control group of a VM with ways of its own."""
    return PREFIX + uuid


@dataclass
class Parts:
    """A group's ways on one cache; without CDP both are one."""

    code: Ways
    data: Ways

    @property
    def all(self) -> Ways:
        return self.code | self.data


@dataclass
class Host:
    """A machine with its groups, as the kernel has them.

    :ivar machine: what it can do while every cache is online.
    :ivar offline: the L3s that are offline.
    :ivar groups: each group's ways by cache.
    :ivar guarded: the groups in mode ``exclusive``.
    :ivar limits: each group's limits of bandwidth, by cache; what is missing is unlimited.
    :ivar empty: the group that was created by the last step, and has neither a task nor a mask that was meant for it.
    """

    machine: Capabilities
    offline: set[int] = field(default_factory=set)
    groups: dict[str, dict[int, Parts]] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
    limits: dict[str, dict[int, int]] = field(default_factory=dict)
    empty: str | None = None

    def __post_init__(self) -> None:
        if not self.groups:
            self.groups[""] = {cache: Parts(self.every(cache), self.every(cache)) for cache in self.caches()}

    def resource(self, cache: int) -> CacheResource:
        found = self.machine.l3 if cache >= 0 else self.machine.l2
        assert found is not None
        return found

    def caches(self) -> list[int]:
        """All that are online; an L2 with the id *n* is ``-1 - n``."""
        l3, l2 = self.machine.l3, self.machine.l2
        found = [cache for cache in l3.cache_ids if cache not in self.offline] if l3 is not None else []
        return found + ([-1 - cache for cache in l2.cache_ids] if l2 is not None else [])

    def every(self, cache: int) -> Ways:
        return numbers(self.resource(cache).cbm_mask)

    def io(self, cache: int) -> Ways:
        return numbers(self.resource(cache).shareable_bits)

    def least(self, cache: int) -> int:
        return max(1, self.resource(cache).min_cbm_bits)

    def is_split(self, cache: int) -> bool:
        return ("L3CODE" if cache >= 0 else "L2CODE") in self.machine.caches

    def ways(self, name: str, cache: int) -> Ways:
        return self.groups[name][cache].all if name in self.groups and cache in self.groups[name] else NOTHING

    def taken(self, cache: int, names: Iterable[str]) -> Ways:
        return NOTHING.union(*(self.ways(name, cache) for name in names))

    def others(self, name: str, cache: int) -> Ways:
        return self.taken(cache, self.groups.keys() - {name})

    def foreign(self, cache: int) -> Ways:
        return self.taken(cache, (name for name in self.groups if owner(name) is Owner.FOREIGN))

    @property
    def unlimited(self) -> int:
        return self.machine.bandwidths["MB"].unit.unlimited

    def limit(self, name: str, cache: int) -> int:
        return self.limits.get(name, {}).get(cache, self.unlimited)

    def capabilities(self) -> Capabilities:
        """What resctrl says now."""
        online = tuple(cache for cache in self.caches() if cache >= 0)
        caches = {
            name: CacheResource(
                resource.name,
                resource.num_closids,
                resource.cbm_mask,
                resource.min_cbm_bits,
                resource.shareable_bits,
                resource.sparse_masks,
                online if name.startswith("L3") else resource.cache_ids,
            )
            for name, resource in self.machine.caches.items()
        }
        return Capabilities(caches, self.machine.bandwidths)

    def layout(self) -> Layout:
        """What a reader of resctrl sees."""
        online = set(self.caches())
        groups = []
        for name, found in self.groups.items():
            here = {cache: parts for cache, parts in found.items() if cache in online}
            splits = {
                cache: Split(mask_of(parts.code), mask_of(parts.data))
                for cache, parts in here.items()
                if self.is_split(cache)
            }
            masks = {cache: mask_of(parts.all) for cache, parts in here.items()}
            limits = {cache: self.limit(name, cache) for cache in online if cache >= 0}
            groups.append(Group(name, owner(name), masks, name in self.guarded, throttles=limits, splits=splits))
        return Layout(tuple(groups))

    def apply(self, step: Step) -> None:
        """Carry out a step.

        :raises Broken: if the kernel would refuse it.
        """
        fresh = None
        match step:
            case CreateGroup(name):
                expect(name not in self.groups, 0, f"{name} exists")
                expect(len(self.groups) < self.machine.num_closids, 9, "out of CLOSIDs")
                self.groups[name] = {cache: self._at_mkdir(cache) for cache in self.caches()}
                fresh = name
            case WriteMasks(name, masks, splits):
                expect(name in self.groups, 0, f"no group {name}")
                for cache, mask in masks.items():
                    self.write(name, cache, mask, splits.get(cache))
            case WriteThrottles(name, limits):
                expect(name in self.groups, 0, f"no group {name}")
                self._throttle(name, limits)
            case SetExclusive(name, True):
                for cache in self.caches():
                    company = self.ways(name, cache) & (self.others(name, cache) | self.io(cache))
                    expect(not company, 0, f"{name} can't be guarded: {company} on {cache}")
                self.guarded.add(name)
            case SetExclusive(name, _):
                self.guarded.discard(name)
            case RemoveGroup(name):
                expect(name in self.groups, 0, f"no group {name}")
                self.remove(name)
        self.empty = fresh

    def write(self, name: str, cache: int, mask: CapacityBitmask, split: Split | None) -> None:
        """Write one mask.

        :raises Broken: if the kernel would refuse it.
        """
        expect(cache in self.caches(), 0, f"no cache {cache}")
        expect((split is not None) == self.is_split(cache), 0, f"parts of {name} on {cache}: {split}")
        parts = Parts(numbers(split.code), numbers(split.data)) if split else Parts(numbers(mask), numbers(mask))
        for ways in (parts.code, parts.data, numbers(mask)):
            legal = ways <= self.every(cache) and len(ways) >= self.least(cache)
            expect(legal and (self.resource(cache).sparse_masks or len(stretches(ways)) == 1), 3, f"{name}: {ways}")
        expect(parts.all == numbers(mask), 0, f"{name}: {parts} are not the parts of {mask}")
        theirs = self.taken(cache, self.guarded - {name})
        if name in self.guarded:
            theirs = self.others(name, cache) | self.io(cache)
        expect(not parts.all & theirs, 0, f"{name} can't have {sorted(parts.all)}, {sorted(theirs)} are guarded")
        self.groups[name][cache] = parts

    def _throttle(self, name: str, limits: Mapping[int, int]) -> None:
        resource = self.machine.bandwidths["MB"]
        for cache, value in limits.items():
            if resource.unit is not BandwidthUnit.MBPS:
                expect(resource.min_bandwidth <= value <= self.unlimited, 3, f"limit {value}")
                expect(value % resource.bandwidth_gran == 0, 3, f"limit {value} would be rounded")
            self.limits.setdefault(name, {})[cache] = value

    def _at_mkdir(self, cache: int) -> Parts:
        """What the kernel gives a new group: the first stretch of what is free or shared."""
        open_to_all = self.taken(cache, self.groups.keys() - self.guarded) | self.io(cache)
        free = self.every(cache) - self.taken(cache, self.groups)
        found = stretches(open_to_all | free)
        expect(bool(found) and len(found[0]) >= self.least(cache), 0, "mkdir finds no space")
        return Parts(frozenset(found[0]), frozenset(found[0]))

    def remove(self, name: str) -> None:
        """A group goes."""
        self.groups.pop(name, None)
        self.limits.pop(name, None)
        self.guarded.discard(name)

    def go_offline(self, cache: int) -> None:
        """The last CPU of an L3 goes."""
        self.offline.add(cache)
        for masks in self.groups.values():
            masks.pop(cache, None)
        for limits in self.limits.values():
            limits.pop(cache, None)

    def come_online(self, cache: int) -> None:
        """A CPU of it is back: every group has all of it (``domain_setup_ctrlval`` in the kernel's resctrl)."""
        self.offline.discard(cache)
        for masks in self.groups.values():
            masks[cache] = Parts(self.every(cache), self.every(cache))


def asked(host: Host, wants: CacheRequest, cache: int) -> int:
    """How many ways of a cache a VM is to get where it can run; 0 for none."""
    least = host.least(cache)
    if cache < 0:
        ways = wants.l2_ways or 0
    elif wants.code_ways is not None and wants.data_ways is not None:
        ways = max(wants.code_ways, least) + max(wants.data_ways, least) if host.is_split(cache) else 0
    else:
        ways = wants.ways or 0
    ways = max(ways, least) if ways else 0
    return min(ways, len(host.every(cache))) if wants.policy is CachePolicy.SHARED else ways


def promised(host: Host, request: Request) -> dict[int, int]:
    """How many ways a VM is to get, by cache."""
    found = {cache: asked(host, request.wants, cache) for cache in host.caches() if cache in request.caches}
    return {cache: ways for cache, ways in found.items() if ways}


def is_exclusive(request: Request) -> bool:
    """Whether a VM asks for ways of its own."""
    return request.wants.policy is CachePolicy.EXCLUSIVE


def reserved(policy: Policy, cache: int) -> Ways:
    """The ways that the operator wants to be left alone."""
    return numbers(policy.reserved_ways) if cache >= 0 else NOTHING


def barred(host: Host, policy: Policy, cache: int) -> Ways:
    """The ways that are not to be promised exclusively."""
    io = NOTHING if policy.use_shareable_ways else host.io(cache)
    return host.foreign(cache) | reserved(policy, cache) | io


def is_calm(host: Host, policy: Policy, cache: int, *names: str) -> bool:
    """Whether the default group, with its floor, and these groups are on ways where they may be.

    Where they are not, somebody else took ways that are theirs, and what is promised exclusively can't be replaced.
    """
    default = host.ways("", cache)
    floor = max(policy.default_ways_min, host.least(cache))
    own = (host.ways(name, cache) for name in names)
    return (
        not default & (host.foreign(cache) | reserved(policy, cache))
        and len(default) >= floor
        and not any(ways & barred(host, policy, cache) and not ways & default for ways in own)
    )


@dataclass
class Oracle:
    """Watches one plan being carried out.

    :param calm: whether nothing but VMs coming, going and changing happened since the last plan: then no class loses
        ways either.
    :ivar users: which group each VM is in, by UUID, when the plan is carried out.
    :ivar given: the groups and caches of which the plan gives a VM ways. A group of a VM that it gives nothing follows
        the default group, and may be the first of the two to be written: then it is alone for one step, by chance.
    """

    host: Host
    requests: Sequence[Request]
    policy: Policy
    calm: bool
    users: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        host = self.host
        self.before = deepcopy(host)
        self.exclusive = {own_group(each.uuid): promised(host, each) for each in self.requests if is_exclusive(each)}
        self.alone = {
            (name, cache) for name, found in self.exclusive.items() for cache in found if self._is_alone(name, cache)
        }
        self.company = {
            (name, cache): host.ways(name, cache) & host.foreign(cache)
            for name, found in self.exclusive.items()
            for cache in found
        }
        self.granted = {
            (name, cache): min(len(host.ways(name, cache)), self.exclusive[name][cache])
            for name, cache in self.alone
            if not host.ways(name, cache) & self._barred(cache)
        }
        self.floor = {cache: min(self._floor(cache), len(host.ways("", cache))) for cache in host.caches()}
        self.classes: dict[tuple[str, int], int] = {}
        self.given = set[tuple[str, int]]()

    def _floor(self, cache: int) -> int:
        return max(self.policy.default_ways_min, self.host.least(cache))

    def _barred(self, cache: int) -> Ways:
        return barred(self.host, self.policy, cache)

    def _ours(self) -> list[str]:
        return [name for name in self.host.groups if owner(name) is not Owner.FOREIGN and name != self.host.empty]

    def _is_alone(self, name: str, cache: int) -> bool:
        ways = self.host.ways(name, cache)
        return bool(ways) and not ways & self.host.taken(cache, (other for other in self._ours() if other != name))

    def plan(self, found: Plan) -> None:
        """What the verdicts let expect of the steps."""
        self.given = {(verdict.group, cache) for verdict in found.allocations.values() for cache in verdict.masks}
        shared = {each.uuid: each for each in self.requests if not is_exclusive(each)}
        for uuid, request in shared.items():
            group = found.allocations[uuid].group
            for cache, cap in promised(self.host, request).items():
                ways = self.host.ways(group, cache)
                if self.calm and owner(group) is Owner.CLASS and group in self.host.groups and len(ways) <= cap:
                    self.classes[group, cache] = len(ways)
        for step in (*found.prepare, *found.retire):
            expect(owner(step.group) is not Owner.FOREIGN, 7, step)

    def step(self, step: Step) -> None:
        """Judge the state after one step.

        :raises Broken: if it breaks a rule.
        """
        host = self.host
        if isinstance(step, WriteMasks):
            for cache in step.masks:
                is_promised = (step.group, cache) in self.given and cache in self.exclusive.get(step.group, {})
                if is_promised and self._is_alone(step.group, cache):
                    self.alone.add((step.group, cache))
                    new = host.ways(step.group, cache) - self.before.ways(step.group, cache)
                    expect(not new & self._barred(cache), 1, f"{step} takes ways that are not to be promised")
        for name, cache in self.alone:
            if name in host.groups and name != host.empty:
                expect(self._is_alone(name, cache), 1, f"{name} is not alone on {cache} after {step}")
                company = host.ways(name, cache) & host.foreign(cache)
                expect(company <= self.company[name, cache], 1, f"{name} joins others on {cache} after {step}")
        for cache, floor in self.floor.items():
            expect(len(host.ways("", cache)) >= floor, 2, f"the default group on {cache} after {step}")
        for (name, cache), least in (*self.granted.items(), *self.classes.items()):
            has = len(host.ways(name, cache))
            expect(has >= least, 4, f"{name} has {has} of {least} ways on {cache} after {step}")
        for name in self.before.groups:
            if owner(name) is Owner.FOREIGN:
                expect(host.groups.get(name) == self.before.groups[name], 7, f"{name} was written by {step}")
                expect(host.limits.get(name) == self.before.limits.get(name), 7, f"{name} was limited by {step}")
        expect(host.limits.get("") == self.before.limits.get(""), 7, f"the default group was limited by {step}")

    def end(self, found: Plan) -> None:
        """Judge the verdicts when everything is carried out.

        :raises Broken: if one is not true.
        """
        self.users = {uuid: verdict.group for uuid, verdict in found.allocations.items()}
        for request in self.requests:
            self._verdict(request, found.allocations[request.uuid])
        needed = {verdict.group for verdict in found.allocations.values()}
        for name in self.host.groups:
            expect(owner(name) in (Owner.DEFAULT, Owner.FOREIGN) or name in needed, 9, f"nobody needs {name}")
        same: dict[object, str] = {}
        for request in self.requests:
            verdict = found.allocations[request.uuid]
            if not is_exclusive(request) and verdict.state is PromiseState.KEPT and self._has_all_levels(request):
                group = same.setdefault(request.wants, verdict.group)
                expect(group == verdict.group, 9, f"{group} and {verdict.group} grant one promise")

    def _has_all_levels(self, request: Request) -> bool:
        return bool(promised(self.host, request)) and (
            request.wants.l2_ways is None or any(cache < 0 for cache in promised(self.host, request))
        )

    def _verdict(self, request: Request, verdict: Allocation) -> None:
        host, wanted = self.host, promised(self.host, request)
        group, kept = verdict.group, verdict.state is PromiseState.KEPT
        expect(group in host.groups, 16, f"{verdict}: there is no such group")
        expect(verdict.masks.keys() <= wanted.keys(), 11, f"{verdict} has ways where it can't run")
        if verdict.state in (PromiseState.PENDING, PromiseState.NONE):
            expect(not group and not verdict.masks, 16, verdict)
        for cache, mask in verdict.masks.items():
            expect(host.ways(group, cache) == numbers(mask), 16, f"{verdict} is not so on {cache}")
        for cache, parts in verdict.splits.items():
            has = host.groups[group][cache]
            expect((has.code, has.data) == (numbers(parts.code), numbers(parts.data)), 16, f"parts of {verdict}")
        for cache, value in verdict.throttles.items():
            expect(host.limit(group, cache) == value, 16, f"limits of {verdict}")
        for cache in host.caches() if kept else ():
            self._kept(request, verdict, cache, wanted.get(cache, 0))
        if group == own_group(request.uuid):
            for cache in host.caches():
                if cache not in wanted:
                    expect(host.ways(group, cache) <= host.ways("", cache), 11, f"{verdict} pays on {cache}")
                if cache >= 0 and cache not in verdict.throttles:
                    expect(host.limit(group, cache) == host.unlimited, 11, f"{verdict} is limited on {cache}")

    def _kept(self, request: Request, verdict: Allocation, cache: int, wanted: int) -> None:
        """A promise that is told kept is, in numbers, parts and limits, and nobody else has any of it."""
        host, wants, ways = self.host, request.wants, self.host.ways(verdict.group, cache)
        if wanted:
            enough = len(ways) == wanted if is_exclusive(request) else len(ways) <= wanted
            expect(enough, 16, f"{verdict}: {wanted} are asked for on {cache}")
            if is_exclusive(request):
                expect(not ways & host.others(verdict.group, cache), 1, f"{verdict} is not alone on {cache}")
            else:
                expect(len(ways) == wanted, 16, f"{verdict}: {wanted} are asked for on {cache}")
        if wanted and cache >= 0 and wants.code_ways is not None and wants.data_ways is not None:
            parts = host.groups[verdict.group][cache]
            least, apart = host.least(cache), not parts.code & parts.data
            have_room = len(ways) >= max(wants.code_ways, least) + max(wants.data_ways, least)
            expect(apart or not have_room, 16, f"{verdict}: code and data are one")
            expect(apart or "both fill" in verdict.reason.text, 16, f"{verdict}: code and data are one, unsaid")
            expect(len(parts.code) >= wants.code_ways or not apart, 16, f"{verdict}: code")
            expect(len(parts.data) >= wants.data_ways or not apart, 16, f"{verdict}: data")
        if cache >= 0 and cache in request.caches and (wants.bandwidth_percent or wants.bandwidth_mbps):
            expect(cache in verdict.throttles, 16, f"{verdict} has no limit on {cache}")

    def rest(self, found: Plan) -> None:
        """Judge a state in which nothing is left to do: nobody waits for ways that there are (rule 5).

        :raises Broken: if somebody does.
        """
        expect(not found.prepare and not found.retire, 6, f"there is no end: {found}")
        for request in self.requests:
            verdict, wanted = found.allocations[request.uuid], promised(self.host, request)
            name = own_group(request.uuid)
            if not wanted or not is_exclusive(request) or "CLOSID" in verdict.reason.text:
                continue
            if name not in self.host.groups and len(self.host.groups) >= self.host.machine.num_closids:
                continue
            has = {cache: len(self.host.ways(name, cache)) if verdict.group == name and cache in verdict.masks else 0
                   for cache in wanted}  # fmt: skip
            short = [cache for cache in wanted if has[cache] < wanted[cache]]
            if short and all(is_calm(self.host, self.policy, cache, *self.exclusive) for cache in short):
                could = all(self._could_have(cache, name, has[cache], wanted[cache]) for cache in short)
                expect(not could, 5, f"{verdict} could have {wanted}")

    def _could_have(self, cache: int, name: str, has: int, wants: int) -> bool:
        """Whether there is a packing in which a VM has its ways beside all others', and a safe way to it."""
        host = self.host
        pool = host.every(cache) - host.foreign(cache) - reserved(self.policy, cache)
        for_vms = host.every(cache) - self._barred(cache)
        default = host.ways("", cache)
        theirs = {
            other: host.ways(other, cache)
            for other, found in self.exclusive.items()
            if cache in found and other in host.groups and not host.ways(other, cache) & default
        }
        classes = (
            len(host.ways(other, cache))
            for other in host.groups
            if owner(other) is Owner.CLASS and self._is_used(other, cache)
        )
        need = max(self._floor(cache), *classes, 0)
        others = [len(ways) for other, ways in theirs.items() if other != name]
        if self.host.resource(cache).sparse_masks:
            total = sum(others) + wants
            return total <= len(for_vms) and total + need <= len(pool)
        if not _there_is_room(pool, for_vms, need, sorted((*others, wants), reverse=True)):
            return False
        if len(host.every(cache)) > 9:
            # Trying every order takes too long.
            return self._is_one_stretch(pool, for_vms)
        now = {other: int(mask_of(ways).bits) for other, ways in theirs.items() if other != name or has}
        goals = [wants if other == name else mask.bit_count() for other, mask in now.items()]
        return can_be_reached(
            Cache(len(host.every(cache)), mask_of(pool).bits, mask_of(for_vms).bits, need),
            mask_of(default).bits,
            list(now.values()),
            goals,
            [] if has else [wants],
        )

    def _is_used(self, name: str, cache: int) -> bool:
        return any(
            not is_exclusive(each) and cache in promised(self.host, each) and self.users.get(each.uuid) == name
            for each in self.requests
        )

    @staticmethod
    def _is_one_stretch(pool: Ways, for_vms: Ways) -> bool:
        """Whether masks can be pushed together whatever they are, as nothing lies in between."""
        return pool == for_vms and len(stretches(pool)) == 1


def _there_is_room(pool: Ways, for_vms: Ways, need: int, lengths: Sequence[int]) -> bool:
    """Whether runs of these lengths, and one for the pool, have places side by side."""
    for stretch in stretches(pool):
        for first in range(len(stretch) - need + 1):
            left = for_vms - frozenset(stretch[first : first + need])
            if _share_out([len(wanted) for wanted in stretches(left)], lengths):
                return True
    return False


def _share_out(spaces: Sequence[int], lengths: Sequence[int]) -> bool:
    if not lengths:
        return True
    for number, space in enumerate(spaces):
        if space >= lengths[0] and space not in spaces[:number]:
            left = [*spaces[:number], space - lengths[0], *spaces[number + 1 :]]
            if _share_out(left, lengths[1:]):
                return True
    return False


def follow(oracle: Oracle, found: Plan, steps: int | None = None) -> Iterator[Step]:
    """Carry out a plan, or the first of its steps; every state on the way is judged.

    :raises Broken: if a rule is broken.
    """
    oracle.plan(found)
    for step in itertools.islice((*found.prepare, *found.retire), steps):
        yield step
        oracle.host.apply(step)
        oracle.step(step)
    oracle.host.empty = None
