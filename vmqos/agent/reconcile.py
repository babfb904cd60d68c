# SPDX-License-Identifier: Apache-2.0
"""One pass: look at what is, decide what should be, move the one to the other."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vmqos import allocation
from vmqos.agent import act, outcome, unseen, view, wish
from vmqos.agent.backoff import Backoff
from vmqos.agent.flavor_lookup import FlavorLookup, Found
from vmqos.agent.inventory import ObservedVm
from vmqos.agent.lock_share import LockShare
from vmqos.agent.log_once import LogOnce
from vmqos.agent.monitoring_groups import MonitoringGroups
from vmqos.agent.outcome import Outcome
from vmqos.agent.placer import Placer
from vmqos.agent.snapshot import CacheTopology, Snapshot
from vmqos.agent.vcpu_limit import Looked, Vcpus, VcpuWatch
from vmqos.agent.view import ResctrlView
from vmqos.agent.wish import Wish
from vmqos.allocation import Owner, PromiseState, Request, SetExclusive, Verdict, caches, owner_of
from vmqos.hypervisor.model import VirtualMachine
from vmqos.openstack import extra_specs
from vmqos.reason import Reason, of_error
from vmqos.resctrl import exceptions
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

LIMBO = 1.0
"""Seconds between two looks of the kernel at RMIDs that were given back (``CQM_LIMBOCHECK_INTERVAL``). A group for
which no RMID is free yet is tried again as often."""


@dataclass(frozen=True, slots=True)
class Change:
    """What may have changed since the last pass.

    :ivar vms: UUIDs of VMs that were looked at anew or are gone.
    :ivar unseen: UUIDs of VMs that run and could not be looked at: what they have is not taken from them.
    :ivar everything: trust nothing that was found before.
    """

    vms: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    everything: bool = False


class Reconciler:
    """Keeps what one pass knows for the next one, so that a pass over an unchanged host is cheap.

    Two kinds of things are kept. What was read is not needed for a right decision: :meth:`forget` costs time alone. How
    many ways each group was granted is never forgotten: it tells whom a cache belongs to after an outsider's write.

    :param filesystem: resctrl.
    :param backoff: failures, by VM UUID; those of monitoring groups by ``("monitoring", uuid)``.
    :param flavors: knows the flavors that the VMs' descriptions don't have; ``None``: nobody does.
    """

    def __init__(self, filesystem: Filesystem, backoff: Backoff, flavors: FlavorLookup | None = None) -> None:
        self._filesystem = filesystem
        self._backoff = backoff
        self._flavors = flavors
        self._monitoring = MonitoringGroups(filesystem, backoff)
        self._placer = Placer(filesystem, backoff)
        self._once = LogOnce(LOG)
        self._vcpu_watch = VcpuWatch(backoff, self._once)
        self._looked = Looked()
        self._unguarded: set[str] = set()
        self._unseen: frozenset[str] = frozenset()
        self._settled = False
        self._unfinished = False
        self._granted: Mapping[str, Mapping[int, int]] | None = None
        self.snapshot = Snapshot()

    @property
    def is_unfinished(self) -> bool:
        """Whether the last pass left something undone because its share of the lock was used up."""
        return self._unfinished

    def forget(self) -> None:
        """Take nothing from earlier passes for granted."""
        self._placer.forget()
        self._unguarded.clear()
        self._settled = self._unfinished = False
        self.snapshot = replace(self.snapshot, view=None)

    def lose(self, reason: Reason, vms: Mapping[str, ObservedVm]) -> None:
        """Without resctrl no group is left: no promise is kept until it is back."""
        self.forget()
        wishes = self._wishes(vms)
        verdicts = {
            uuid: Verdict(uuid, PromiseState.PENDING, reason=reason)
            for uuid in vms
            if wishes[uuid].request is not None and not wishes[uuid].hands_off
        }
        unmonitored = dict.fromkeys(vms, reason.text)
        outcomes = self._judge(vms, wishes, verdicts)
        self.snapshot = replace(
            self.snapshot, vms=dict(vms), wishes=wishes, outcomes=outcomes, placed={}, unmonitored=unmonitored
        )

    def peek(self, topology: CacheTopology) -> None:
        """Look at resctrl and change nothing; the caller holds the lock, shared or exclusive.

        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        now = view.look(self._filesystem, self.snapshot.view)
        self.snapshot = replace(self.snapshot, view=now, topology=topology)

    def look(self, change: Change, vms: Mapping[str, ObservedVm]) -> None:
        """Find out what takes long and needs no lock, right before the lock is taken for :meth:`run`.

        Those are the wishes of VMs, and which of their threads run the vCPUs that flavors name.
        """
        wishes = self._looked.wishes
        if change.everything or change.vms or not self._settled or wishes.keys() != vms.keys():
            wishes = self._wishes(vms)
        changed = vms.keys() if change.everything else change.vms
        vcpus, born = self._vcpu_watch.look(vms, wishes, changed)
        # What a pass found that did not get the lock is owed to the next one.
        self._looked = Looked(wishes, vcpus, (self._looked.born | born) & vms.keys())

    def run(
        self, change: Change, vms: Mapping[str, ObservedVm], topology: CacheTopology, policy: allocation.Policy
    ) -> bool:
        """One pass; the caller called :meth:`look`, and has then taken the exclusive lock on resctrl.

        Others wait for the lock, so what does not fit into :data:`vmqos.agent.lock_share.SHARE` is left to the next
        pass. Promises are right at that point, too: ways are given out before tasks are moved, and to no two VMs.

        :returns: whether another pass right away gets further: where time ran out, where another program meddled, where
            caches came or went.
        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        share = LockShare()
        self._unfinished = False
        before = self.snapshot.view
        now = view.look(self._filesystem, None if change.everything else before)
        if before is None or now.mounted_as != before.mounted_as:
            self.forget()
        elif change.everything:
            self._unguarded.clear()
        elif before.capabilities.l3_caches != now.capabilities.l3_caches:
            # Where VMs can run has to be looked at anew before anything is planned for the caches that came or went.
            self._settled = False
            self.snapshot = replace(self.snapshot, view=now)
            return True
        strays = self._placer.strays(vms, share) | self._looked.born
        self.snapshot = replace(self.snapshot, view=now, topology=topology)
        if (
            self._settled
            and now == before
            and not (change.everything or change.vms or strays or self._placer.is_owing or self._backoff.any_due())
            and change.unseen == self._unseen
            and policy == self.snapshot.policy
        ):
            return False
        self._unseen = change.unseen
        look_at = set(vms) if change.everything else set(change.vms) | strays
        again = self._change(now, look_at, vms, topology, policy, share)
        self._looked = replace(self._looked, born=frozenset())
        return again

    def _change(
        self,
        now: ResctrlView,
        look_at: set[str],
        vms: Mapping[str, ObservedVm],
        topology: CacheTopology,
        policy: allocation.Policy,
        share: LockShare,
    ) -> bool:
        self._backoff.keep_only(
            {key for uuid in vms for key in (uuid, ("monitoring", uuid), ("tasks", uuid), ("vcpus", uuid))}
        )
        wishes, vcpus_of_all = self._looked.wishes, self._looked.vcpus
        wishes = {uuid: vcpus_of_all.applied(uuid, found) for uuid, found in wishes.items()}
        limits = vcpus_of_all.limits
        unknown = {uuid for uuid, found in wishes.items() if found.unknown and not found.hands_off}
        members = unseen.find_members(self._filesystem, now, self._unseen, unknown, vms)
        kept = unseen.requests(now, self._unseen | unknown, members, self._granted)
        requests = (*self._requests(now, vms, wishes, vcpus_of_all, topology), *kept)
        plan = self._without_refused(allocation.plan(now.capabilities, now.layout, requests, policy, self._granted))
        order = sorted(vms, key=lambda uuid: (vms[uuid].vm.process.start_time, uuid))
        if self._monitoring.make_room(now, sorted(_created(plan)), self._graphs(now, plan, order, wishes)):
            now = view.look(self._filesystem, now)
        failure, alone = self._prepare(plan), False
        if failure is None:
            self._granted = self._remembered(plan, unknown | {uuid for uuid in vms if self._backoff.waits(uuid)})
            now = replace(now, layout=act.predict(now.layout, plan.prepare))
        else:
            now = view.look(self._filesystem, now)
            alone = self._blame(now, plan, failure)
        completed = failure is None
        verdicts = {uuid: _in_force(now, plan, verdict) for uuid, verdict in plan.verdicts.items()}
        for uuid, observed_wish in wishes.items():
            in_force = uuid in verdicts and verdicts[uuid] is plan.verdicts[uuid] and not self._backoff.waits(uuid)
            if in_force or observed_wish.request is None:
                self._backoff.succeed(uuid)
        ours = [uuid for uuid in order if not wishes[uuid].hands_off]
        controls = {uuid: verdicts[uuid].group if uuid in verdicts else "" for uuid in ours}
        # A VM whose flavor is not known now, and which is in two groups: its tasks stay where they are.
        parted = {uuid for uuid in unknown if now.counts_apart(uuid)} | members.parted
        left = {uuid for uuid in parted & controls.keys() if controls[uuid]}
        arranged = self._monitoring.arrange(now, controls, self._unseen, limits.keys() | left, share)
        # Nothing but a graph is to be had in the default group, so a VM that is yet to get it is moved then.
        later = {uuid for uuid in arranged.later if not controls[uuid]}
        moved = [uuid for uuid in controls if uuid not in left and uuid not in later]
        threads = {uuid: limit.threads for uuid, limit in limits.items()}
        aims = {uuid: arranged.aim(uuid, controls[uuid], threads.get(uuid)) for uuid in moved}
        self._placer.place(now, aims, look_at, vms, arranged.fresh | _created(plan), share)
        self._unfinished = self._placer.is_owing or bool(arranged.later)
        self._monitoring.remove(arranged.stale)
        if completed:
            completed = self._retire(plan, verdicts)
        # As many links as before need not be the same monitoring groups.
        now = view.look(self._filesystem, replace(now, links=()))
        planned, verdicts = verdicts, {uuid: outcome.borne_out(each, now.layout) for uuid, each in verdicts.items()}
        meddled = any(verdicts[uuid] is not planned[uuid] for uuid in verdicts)
        left_over = bool(plan.prepare or plan.retire or arranged.later)
        self._settled = completed and not left_over and not meddled
        outcomes = self._judge(vms, wishes, verdicts)
        placed = dict(self._placer.placed)
        self.snapshot = Snapshot(
            now, topology, policy, dict(vms), wishes, outcomes, placed, arranged.unmonitored, requests, limits
        )
        waiting = any(verdict.state is not PromiseState.KEPT for verdict in verdicts.values())
        return meddled or alone or self._unfinished or (completed and bool(plan.retire) and waiting)

    def _graphs(
        self, now: ResctrlView, plan: allocation.Plan, order: Sequence[str], wishes: Mapping[str, Wish]
    ) -> list[str]:
        """The VMs whose monitoring groups may be given up for a promise, the first to do so in front.

        Those of VMs that are gone come first; then those of the VMs that get a control group, which counts them from
        then on; then those of VMs without a promise; then the rest. Of each kind the VM that came last goes first.
        """
        created = _created(plan)

        def rank(uuid: str) -> int:
            verdict = plan.verdicts.get(uuid)
            if verdict is not None and verdict.group in created and owner_of(verdict.group) is Owner.VM:
                return 0
            return 1 if verdict is None and wishes[uuid].request is None else 2

        gone = sorted(now.monitored - set(order) - self._unseen)
        return [*gone, *sorted(reversed(order), key=rank)]

    def _remembered(self, plan: allocation.Plan, stand_ins: set[str]) -> dict[str, Mapping[int, int]]:
        """How many ways each group is granted by a plan that was carried out, to be known to the next one.

        :param stand_ins: UUIDs of VMs for which the planner was asked for what they have now, and not for what their
            flavor says. What they were granted before stays known. Those that could not be looked at are such, too.
        """
        before = {allocation.vm_group(uuid) for uuid in stand_ins | self._unseen}
        return {**plan.granted, **{name: ways for name, ways in (self._granted or {}).items() if name in before}}

    def _wishes(self, vms: Mapping[str, ObservedVm]) -> dict[str, Wish]:
        lacking = [observed.vm for observed in vms.values() if wish.lacks_extra_specs(observed.vm)]
        found = self._flavors.look_up(lacking) if self._flavors is not None else {}
        return {uuid: self._wish(observed.vm, found.get(uuid)) for uuid, observed in vms.items()}

    def _wish(self, vm: VirtualMachine, found: Found | None) -> Wish:
        try:
            return wish.read(vm, found)
        except Exception as error:
            unknown = wish.unreadable(error)
            self._once.log(logging.ERROR, ("wish", vm.uuid), "VM %s: %s", vm.uuid, unknown.unknown, error=error)
            return unknown

    def _requests(
        self,
        now: ResctrlView,
        vms: Mapping[str, ObservedVm],
        wishes: Mapping[str, Wish],
        vcpus: Vcpus,
        topology: CacheTopology,
    ) -> list[Request]:
        every_cache = frozenset(now.capabilities.l3_caches) or frozenset({0})
        requests = []
        for uuid, observed in vms.items():
            wanted = wishes[uuid].request
            if wanted is None or wishes[uuid].hands_off:
                continue
            limit = vcpus.limits.get(uuid)
            if limit is not None and not limit.present:
                continue
            reach = topology.caches_of(limit.cpus if limit else observed.cpus) & every_cache or every_cache
            if wanted.l2_ways is not None:
                affinities = limit.affinities if limit else vcpus.affinities[uuid]
                reach |= {caches.l2(core) for core in topology.cores_of(affinities)}
            if self._backoff.waits(uuid):
                # What failed is not tried again yet; what the VM has, it keeps.
                group = now.group(allocation.vm_group(uuid))
                placed = self._placer.placed.get(uuid)
                if group is not None:
                    has_l3 = wanted.ways is not None or wanted.code_ways is not None
                    has_l2 = wanted.l2_ways is not None
                    there = reach & group.masks.keys()
                    held = unseen.ways_of(
                        group,
                        caches.among(3, there) if has_l3 else frozenset(),
                        caches.among(2, there) if has_l2 else frozenset(),
                    )
                    wanted = unseen.with_limits_of(now, group, replace(held, policy=wanted.policy))
                    if not extra_specs.asks_for(wanted):
                        continue
                elif placed is None or owner_of(placed.target.control) is not Owner.CLASS:
                    continue
            requests.append(Request(uuid, wanted, reach, observed.vm.process.start_time))
        return requests

    def _without_refused(self, plan: allocation.Plan) -> allocation.Plan:
        """The plan without the guards that the kernel refused and would refuse again."""
        return replace(
            plan,
            prepare=tuple(
                step
                for step in plan.prepare
                if not (isinstance(step, SetExclusive) and step.exclusive and step.group in self._unguarded)
            ),
        )

    def _prepare(self, plan: allocation.Plan) -> act.StepFailed | None:
        """Carry out the plan's first part; the step that failed, if one did."""
        try:
            self._unguarded |= act.execute(self._filesystem, plan.prepare)
        except act.StepFailed as failure:
            LOG.error("%s: %s", act.describe(failure.step), failure)
            return failure
        return None

    def _blame(self, now: ResctrlView, plan: allocation.Plan, failure: act.StepFailed) -> bool:
        """Note the failure for the VMs that it concerns: those of the group, or else all that miss something now.

        :returns: whether it concerns some VMs only, so that a pass without them gets further.
        """
        concerned = [uuid for uuid, verdict in plan.verdicts.items() if verdict.group == failure.step.group != ""]
        blamed = [
            uuid
            for uuid in concerned or plan.verdicts
            if _in_force(now, plan, plan.verdicts[uuid]) is not plan.verdicts[uuid]
        ]
        at_most = LIMBO if isinstance(failure.error, exceptions.RmidsInLimbo) else math.inf
        for uuid in blamed:
            self._backoff.fail(uuid, of_error(failure), at_most)
        return bool(concerned and blamed)

    def _retire(self, plan: allocation.Plan, verdicts: Mapping[str, Verdict]) -> bool:
        """Take down what no VM needs, unless the plan turned out differently; whether all of it succeeded."""
        if any(verdict.group != plan.verdicts[uuid].group for uuid, verdict in verdicts.items()):
            return False
        try:
            act.execute(self._filesystem, plan.retire)
        except act.StepFailed as failure:
            LOG.error("%s: %s", act.describe(failure.step), failure)
            return False
        return True

    def _judge(
        self, vms: Mapping[str, ObservedVm], wishes: Mapping[str, Wish], verdicts: Mapping[str, Verdict]
    ) -> dict[str, Outcome]:
        outcomes = {}
        for uuid in vms:
            verdict = verdicts.get(uuid)
            if verdict is None and wishes[uuid].request is not None and not wishes[uuid].hands_off:
                verdict = Verdict(uuid, PromiseState.PENDING)
            failure = outcome.failure_of(self._backoff, uuid)
            fresh = outcome.judge(wishes[uuid], verdict, self._placer.placed.get(uuid), failure)
            last = self.snapshot.outcomes.get(uuid)
            same = last is not None and last.state is fresh.state
            outcomes[uuid] = replace(fresh, since=last.since if last is not None and same else time.time())
            if last is None or (last.state, last.reason) != (fresh.state, fresh.reason):
                _announce(vms[uuid], outcomes[uuid])
        return outcomes


def _in_force(now: ResctrlView, plan: allocation.Plan, verdict: Verdict) -> Verdict:
    """The verdict if resctrl bears it out; else what is left of it."""
    group, default = now.group(verdict.group), now.group(allocation.DEFAULT_GROUP)
    if not verdict.group or group is None or default is None:
        return verdict if not verdict.group else Verdict(verdict.uuid, PromiseState.PENDING, reason=verdict.reason)
    limits = {cache: value for cache, value in verdict.throttles.items() if group.throttles.get(cache) == value}
    divided = all(group.splits.get(cache) == parts for cache, parts in verdict.splits.items())
    placed = all(group.masks.get(cache) == mask for cache, mask in verdict.masks.items())
    if placed and divided and limits == verdict.throttles:
        return verdict
    held = {cache: group.masks[cache] for cache in verdict.masks if cache in group.masks}
    # Ways that the default group has too are what the kernel gave a new group, and no grant.
    own = group.owner is Owner.CLASS or not any(
        mask.overlaps(default.masks[cache]) for cache, mask in held.items() if cache in default.masks
    )
    if held and own and verdict.group not in _created(plan):
        splits = {cache: group.splits[cache] for cache in verdict.splits if cache in group.splits}
        return replace(verdict, state=PromiseState.DEGRADED, masks=held, throttles=limits, splits=splits)
    return Verdict(verdict.uuid, PromiseState.PENDING, reason=verdict.reason)


def _announce(observed: ObservedVm, told: Outcome) -> None:
    level = logging.WARNING if told.state in (PromiseState.PENDING, PromiseState.DEGRADED) else logging.INFO
    LOG.log(level, "VM %s (%s): %s%s", observed.vm.uuid, observed.vm.name, told.state.value,
            f": {told.reason.text}" if told.reason else "")  # fmt: skip


def _created(plan: allocation.Plan) -> set[str]:
    return {step.group for step in plan.prepare if isinstance(step, allocation.CreateGroup)}
