# SPDX-License-Identifier: Apache-2.0
"""What happens to a host over time, and an agent that plans meanwhile; the oracle watches.

VMs come, go, are resized and pinned elsewhere. Others make groups. An outsider writes our groups' masks, or removes a
group. Caches go off and on. The operator changes the configuration. The agent is killed between any two steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.unit.allocation.machines import EXCLUSIVE, SHARED, machine, uuid
from tests.unit.allocation.oracle import (
    Broken,
    Host,
    Oracle,
    Parts,
    Ways,
    expect,
    follow,
    is_calm,
    is_exclusive,
    mask_of,
    own_group,
    owner,
    promised,
)
from vmqos.allocation import Plan, Policy, Request, Split, WhenFull, plan
from vmqos.extra_specs import CacheRequest
from vmqos.group_names import Owner
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit, Capabilities

FOREIGN = ("containers", "pqos", "qemu-1-a-vcpus_0")
VMS = range(1, 8)

Planner = Callable[..., Plan]


class Story:
    """One host, one agent.

    :param luck: decides what happens.
    :ivar log: what happened, to be read when a rule is broken.
    """

    def __init__(self, luck: random.Random) -> None:
        self.luck = luck
        self.log: list[str] = []
        self.host = Host(_machine(luck))
        self.policy = _policy(luck)
        self.vms: dict[int, Request] = {}
        self.clock = 0
        self.known: Mapping[str, Mapping[int, int]] | None = None
        self.ledger: dict[tuple[str, int], int] = {}
        self.unknown: set[tuple[str, int]] = set()
        """The entries of the ledger on caches that are offline since before the agent started."""
        self.damaged = False
        """Whether masks were spoilt since the agent last saw everything in order."""
        self.meddled = False
        """Whether that was an outsider's doing, and not a cache's that came online."""
        self.killed = False
        """Whether the agent was killed while it carried out its last plan."""
        self.smaller = False
        """Whether a cache may have less to give than when the ledger was written."""

    def go(self, chapters: int = 5) -> None:
        """Let things happen, and have the agent see to them.

        :raises Broken: if it breaks a rule.
        """
        try:
            for _ in range(chapters):
                for _ in range(self.luck.randint(1, 3)):
                    self.luck.choice(EVENTS)(self)
                self.passes()
        except Broken as broken:
            broken.add_note("\n".join(self.log))
            raise

    def requests(self) -> list[Request]:
        """What the agent asks the planner for."""
        online = {cache for cache in self.host.caches() if cache >= 0}
        found = []
        for vm in self.vms.values():
            reach = frozenset(cache for cache in vm.caches if cache < 0) | (vm.caches & online or online)
            found.append(replace(vm, caches=frozenset(reach)))
        self.luck.shuffle(found)
        return found

    def passes(self) -> None:
        """Plan and carry out until nothing is left to do; sometimes the agent is killed on the way."""
        if self.damaged and self.known is None:
            self.lose_count()
        for attempt in range(9):
            requests = self.requests()
            oracle = Oracle(self.host, requests, self.policy, not (self.damaged or self.smaller or self.killed))
            found = plan(self.host.capabilities(), self.host.layout(), requests, self.policy, self.known)
            count = len(found.prepare) + len(found.retire)
            self.killed = count > 0 and attempt < 4 and self.luck.random() < 0.15
            steps = self.luck.randrange(count) if self.killed else None
            for step in follow(oracle, found, steps):
                self.log.append(f"  {step}")
            if self.killed:
                self.restart()
                continue
            oracle.end(found)
            self.known = found.granted
            if not count:
                oracle.rest(found)
                self.settle(found)
                return
        raise Broken(6, f"there is no end: {found}")

    def restart(self) -> None:
        """The agent starts anew, and knows what the layout shows."""
        self.log.append("the agent starts anew")
        self.known = None
        self.unknown |= {key for key in self.ledger if key[1] in self.host.offline}
        if self.damaged:
            self.lose_count()

    def lose_count(self) -> None:
        """What was spoilt, unless the agent knows what it was, can't all be given back.

        But where no outsider wrote, each VM gets something back (doc/source/contributor/allocation.rst).
        """
        alone = {vm.uuid for vm in self.vms.values() if is_exclusive(vm) and own_group(vm.uuid) in self.host.groups}
        self.ledger = {
            (vm_uuid, cache): min(ways, self.host.least(cache))
            for (vm_uuid, cache), ways in self.ledger.items()
            if vm_uuid in alone and not self.meddled
        }

    def settle(self, found: Plan) -> None:
        """Hold what VMs have against what they had, and write down what they have."""
        has: dict[tuple[str, int], int] = {}
        owed: dict[tuple[str, int], int] = {}
        for vm in self.requests():
            group = found.allocations[vm.uuid].group
            mine = group == own_group(vm.uuid) if is_exclusive(vm) else owner(group) is Owner.CLASS
            for cache, wanted in promised(self.host, vm).items():
                got = cache in found.allocations[vm.uuid].masks and mine
                has[vm.uuid, cache] = min(wanted, len(self.host.ways(group, cache))) if got else 0
                owed[vm.uuid, cache] = min(wanted, self.ledger.get((vm.uuid, cache), 0))
        if not self.smaller:
            for (vm_uuid, cache), ways in owed.items():
                now = has[vm_uuid, cache]
                given = found.allocations[vm_uuid]
                expect(now >= ways, 4, f"{vm_uuid} had {ways} ways on {cache} and has {now}: {given}")
        # Where anybody is on ways that it shall leave, not all who were there may find room again.
        names = [own_group(vm.uuid) for vm in self.vms.values() if is_exclusive(vm)]
        calm = {cache for cache in self.host.caches() if is_calm(self.host, self.policy, cache, *names)}
        has = {key: ways for key, ways in has.items() if key[1] in calm}
        gone = {key: ways for key, ways in self.ledger.items() if key[1] in self.host.offline and self._lives(key[0])}
        if self.smaller:
            gone.clear()
        # With the VM's own group goes the only evidence that it had anything there.
        alone = [vm.uuid for vm in self.vms.values() if is_exclusive(vm)]
        without = {vm_uuid for vm_uuid in alone if own_group(vm_uuid) not in self.host.groups}
        gone = {key: ways for key, ways in gone.items() if key not in self.unknown or key[0] not in without}
        self.unknown &= gone.keys()
        self.ledger = gone | has
        self.damaged = self.meddled = self.smaller = False

    def _lives(self, vm_uuid: str) -> bool:
        return any(vm.uuid == vm_uuid for vm in self.vms.values())

    def forget(self, number: int) -> None:
        """A VM is owed nothing of what it gave up itself."""
        for key in [key for key in self.ledger if key[0] == uuid(number)]:
            del self.ledger[key]

    def one_of_the_vms(self) -> int | None:
        return self.luck.choice(sorted(self.vms)) if self.vms else None


def _start(story: Story) -> None:
    number = story.luck.choice(VMS)
    if number not in story.vms:
        story.clock += 1
        story.vms[number] = Request(uuid(number), _wants(story), _reach(story), story.clock)
        story.log.append(f"start {story.vms[number]}")


def _stop(story: Story) -> None:
    if (number := story.one_of_the_vms()) is not None:
        story.log.append(f"stop {number}")
        del story.vms[number]
        story.forget(number)


def _resize(story: Story) -> None:
    if (number := story.one_of_the_vms()) is not None:
        before, wants = story.vms[number], _wants(story)
        story.vms[number] = replace(before, wants=wants)
        story.log.append(f"resize {story.vms[number]}")
        if wants.policy is not before.wants.policy or not is_exclusive(before):
            story.forget(number)
        else:
            _cut(story, number)


def _repin(story: Story) -> None:
    if (number := story.one_of_the_vms()) is not None:
        story.vms[number] = replace(story.vms[number], caches=_reach(story))
        story.log.append(f"pin {story.vms[number]}")
        _cut(story, number)


def _cut(story: Story, number: int) -> None:
    """A VM is owed no more than it asks for, where it can run."""
    vm = story.vms[number]
    for vm_uuid, cache in list(story.ledger):
        if vm_uuid == vm.uuid and cache not in story.host.offline:
            wanted = promised(story.host, vm).get(cache, 0)
            story.ledger[vm_uuid, cache] = min(story.ledger[vm_uuid, cache], wanted)


def _foreign_comes(story: Story) -> None:
    host, name = story.host, story.luck.choice(FOREIGN)
    if name not in host.groups and len(host.groups) >= host.machine.num_closids:
        return
    if name not in host.groups:
        host.groups[name] = {cache: _parts(host.every(cache)) for cache in host.caches()}
        for cache in host.caches():
            free = host.every(cache) - host.taken(cache, host.guarded)
            host.groups[name][cache] = _parts(free or host.every(cache))
    if story.luck.random() < 0.7:
        for cache in host.caches():
            ways = _run(story, cache, story.luck.randint(host.least(cache), 3))
            if not ways & host.taken(cache, host.guarded - {name}):
                host.groups[name][cache] = _parts(ways)
    story.log.append(f"foreign {name} {host.groups[name]}")
    story.smaller = True


def _foreign_goes(story: Story) -> None:
    name = story.luck.choice(FOREIGN)
    story.host.remove(name)
    story.log.append(f"foreign {name} is gone")


def _outsider_writes(story: Story) -> None:
    """Somebody writes a mask of ours; the kernel refuses what is guarded."""
    host = story.host
    name = story.luck.choice(["", "", *sorted(name for name in host.groups if owner(name) is not Owner.FOREIGN)])
    cache = story.luck.choice(host.caches())
    others = [ways for other in host.groups if (ways := host.ways(other, cache))]
    ways = story.luck.choice([*others, host.every(cache), _run(story, cache, story.luck.randint(host.least(cache), 4))])
    split = Split(mask_of(ways), mask_of(ways)) if host.is_split(cache) else None
    try:
        host.write(name, cache, mask_of(ways), split)
    except Broken:
        return
    story.log.append(f"an outsider writes {name!r} on {cache}: {sorted(ways)}")
    story.damaged = story.meddled = True


def _outsider_removes(story: Story) -> None:
    ours = sorted(name for name in story.host.groups if owner(name) in (Owner.VM, Owner.CLASS))
    if ours:
        name = story.luck.choice(ours)
        story.host.remove(name)
        story.log.append(f"an outsider removes {name}")
        story.damaged = story.meddled = True


def _cache_goes(story: Story) -> None:
    online = [cache for cache in story.host.caches() if cache >= 0]
    if len(online) > 1:
        cache = story.luck.choice(online)
        story.host.go_offline(cache)
        if story.known is None:
            # An agent that has not looked since it started can't know what was there.
            story.ledger = {key: ways for key, ways in story.ledger.items() if key[1] != cache}
        story.log.append(f"cache {cache} goes offline")


def _cache_comes(story: Story) -> None:
    """A cache comes back, or goes off and on within a moment."""
    host = story.host
    cache = story.luck.choice(sorted(host.offline) or [cache for cache in host.caches() if cache >= 0])
    host.come_online(cache)
    story.log.append(f"cache {cache} comes online")
    story.damaged = True
    # The groups of others have all of it too, and nobody but their owners gives that back.
    story.smaller |= any(owner(name) is Owner.FOREIGN for name in host.groups)


def _configuration(story: Story) -> None:
    story.policy = _policy(story.luck)
    story.log.append(f"{story.policy}")
    story.smaller = True


def _restart(story: Story) -> None:
    story.restart()


EVENTS: tuple[Callable[[Story], None], ...] = (
    *(_start, _start, _start, _start, _stop, _resize, _resize, _repin),
    *(_foreign_comes, _foreign_goes, _outsider_writes, _outsider_writes, _outsider_removes),
    *(_cache_goes, _cache_comes, _cache_comes, _configuration, _restart),
)


def _parts(ways: Ways) -> Parts:
    return Parts(ways, ways)


def _run(story: Story, cache: int, size: int) -> Ways:
    first = story.luck.randint(0, len(story.host.every(cache)) - size)
    return frozenset(range(first, first + size))


def _reach(story: Story) -> frozenset[int]:
    l3, l2 = story.host.machine.l3, story.host.machine.l2
    assert l3 is not None
    found = story.luck.sample(l3.cache_ids, story.luck.randint(1, len(l3.cache_ids)))
    if l2 is not None and story.luck.random() < 0.5:
        found.append(-1 - story.luck.choice(l2.cache_ids))
    return frozenset(found)


def _wants(story: Story) -> CacheRequest:
    luck = story.luck
    policy = luck.choice([EXCLUSIVE, EXCLUSIVE, EXCLUSIVE, SHARED])
    percent = luck.choice([None, None, None, 10, 25, 50])
    mbps = luck.choice([None, 125, 1000]) if percent is None and luck.random() < 0.3 else None
    l2 = luck.choice([None, None, 1, 3])
    if luck.random() < 0.2:
        return CacheRequest(None, policy, luck.randint(1, 2), luck.randint(1, 3), l2, percent, mbps)
    return CacheRequest(luck.choice([1, 1, 2, 2, 3, 4, 5, 7]), policy, None, None, l2, percent, mbps)


def _policy(luck: random.Random) -> Policy:
    return Policy(
        default_ways_min=luck.choice([1, 2, 2, 3]),
        use_shareable_ways=luck.random() < 0.3,
        reserved_ways=CapacityBitmask(luck.choice([0, 0, 0, 0, 1, 0b11, 0b1000])),
        when_full=luck.choice(list(WhenFull)),
        kernel_exclusive=luck.random() < 0.6,
    )


def _machine(luck: random.Random) -> Capabilities:
    width, io = luck.choice([6, 7, 8, 9, 11, 12]), luck.choice([0, 0, 1, 2])
    return machine(
        width,
        range(luck.choice([1, 1, 2, 2, 3])),
        ((1 << io) - 1) << (width - io if luck.random() < 0.7 else 0),
        luck.choice([1, 1, 1, 2]),
        luck.random() < 0.15,
        luck.choice([4, 5, 8, 16]),
        luck.random() < 0.2,
        luck.choice(list(BandwidthUnit)),
        luck.random() < 0.3,
        luck.random() < 0.5,
    )
