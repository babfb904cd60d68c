# SPDX-License-Identifier: Apache-2.0
"""One pass: observe, request, plan, act, judge. The loop has looked at the VMs already; all else is here."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Set
from dataclasses import replace

from vmqos import allocation
from vmqos.agent import judge, keep_current, planner_requests, trial
from vmqos.agent.act import monitoring_plan
from vmqos.agent.act.control_groups import ControlGroups, StepFailed, created, predict
from vmqos.agent.act.monitoring_groups import MonitoringGroups
from vmqos.agent.act.move_tasks import TaskGroup, TaskGroups
from vmqos.agent.act.task_placer import YET_TO_BE_MOVED, Placer
from vmqos.agent.courtesy import Courtesy, LockShare
from vmqos.agent.observe import flavor_request
from vmqos.agent.observe.cache_vcpus import Vcpus, VcpuWatch
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.lost_vms import LostVms
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.starts import Starts
from vmqos.agent.observe.told_flavors import ToldFlavors
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.steps import Acted, Change, Observed, Planned, Requested
from vmqos.agent.trial import Trial
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Plan, PromiseState, RemoveGroup, Request
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.group_names import DEFAULT_GROUP, Owner, owner_of, vm_group, vm_of
from vmqos.host import resctrl_state
from vmqos.host.resctrl_state import ResctrlState
from vmqos.hypervisor.model import Process
from vmqos.reason import Reason, of_error
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.topology import CacheTopology

LOG = logging.getLogger(__name__)

MOUNTED_ANEW = "resctrl was mounted anew, and no VM had a group meanwhile"
"""Why a trial is over."""


class GaveWay(Exception):
    """A pass that no VM waits for has ended early, because something is in a hurry: it is to be made again.

    It has changed no control group.
    """


class Reconciler:
    """Keeps what one pass knows for the next one, so that a pass over an unchanged host is cheap.

    It keeps two kinds of things. What it read is not needed for a right decision, so :meth:`forget` costs only time.
    How many ways each group was granted is never forgotten: after another program's write, only this number tells what
    each VM had.

    :param filesystem: resctrl.
    :param backoff: failures, by VM UUID; those of monitoring groups by ``("monitoring", uuid)``, of tasks by
        ``("tasks", uuid)``, of vCPUs by ``("vcpus", uuid)``.
    :param flavors: knows the flavors that the VMs' descriptions lack; ``None`` where Nova is not asked.
    :param courtesy: says for how long what can wait is put off.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        backoff: Backoff,
        flavors: ToldFlavors | None = None,
        courtesy: Courtesy | None = None,
    ) -> None:
        self._filesystem = filesystem
        self._courtesy = courtesy or Courtesy()
        self._backoff = backoff
        self._flavors = flavors
        self._groups = ControlGroups(filesystem, backoff)
        self._monitoring = MonitoringGroups(filesystem, backoff)
        self._placer = Placer(filesystem, backoff)
        self._once = LogOnce(LOG)
        self._vcpu_watch = VcpuWatch(backoff, self._once)
        self._lost = LostVms(filesystem)
        self._requested = Requested()
        self._unseen: frozenset[str] = frozenset()
        self._mounted_as: tuple[int, int, int] | None = None
        """The mount that all of this is about; ``None`` before the first pass."""
        self._is_mounted_anew = False
        """Whether that is another mount than that of the last plan."""
        self._settled = False
        self._unfinished = False
        self._in_force: Mapping[str, Allocation] = {}
        """The part of its allocation that each VM has since the last whole pass, by UUID."""
        self._aims: Mapping[str, TaskGroups] = {}
        """The groups in which each VM's tasks belong since then, by UUID."""
        self._granted: Mapping[str, Mapping[int, int]] | None = None
        self._has_taken_ways = False
        """Whether the default group may lack ways that were taken from it: those of a group that is not there, too."""
        self._guard = threading.Lock()
        self.starts = Starts(filesystem)
        self.snapshot = Snapshot()
        self.given_up: tuple[Trial, str] | None = None
        """The trial that the last whole pass did not carry out, and why: because others need what it takes, mostly."""
        self._before_trial: Mapping[str, Mapping[int, CapacityBitmask]] = {}
        """Where masks lay before ways were tried on a VM, by group and cache, until they lie there again."""
        self.is_wanted: Callable[[], bool] = lambda: False
        """Says whether another thread of the agent, which is in a hurry, waits for the lock on resctrl."""
        self.has_news: Callable[[], bool] = lambda: False
        """Says whether the end or a change of a VM waits for the next pass."""

    @property
    def lost(self) -> frozenset[Process]:
        """The processes of VMs that libvirt has lost: once one has ended, a pass removes what was kept for it."""
        return self._lost.found.processes

    @property
    def is_unfinished(self) -> bool:
        """Whether the last pass left something undone: its time, or its share of the lock, was over, or it gave way."""
        return self._unfinished or self._requested.is_cut_short

    def forget(self) -> None:
        """Trust nothing that earlier passes read."""
        self._placer.forget()
        self._groups.forget()
        self._settled = self._unfinished = False
        self._before_trial = {}
        with self._guard:
            last_read = self.snapshot.resctrl or self.snapshot.last_read
            self.snapshot = replace(self.snapshot, resctrl=None, last_read=last_read)

    def _begin_anew(self, mounted_as: tuple[int, int, int]) -> None:
        """Trust nothing that earlier passes read; where resctrl is mounted anew, forget what has failed, too.

        :param mounted_as: the mount of now.
        """
        self.forget()
        if self._mounted_as not in (None, mounted_as):
            self._backoff.keep_only(())
            self._is_mounted_anew, self._has_taken_ways = True, False
        self._mounted_as = mounted_as

    def lose(self, reason: Reason, vms: Mapping[str, ObservedVm]) -> None:
        """Note that resctrl is gone, and all groups with it: no promise is kept until it is back.

        :param reason: why resctrl is gone.
        """
        self.forget()
        requests = flavor_request.read_all(vms, self._flavors, self._once)
        records = {uuid: VmRecord(observed, requests[uuid], unmonitored=reason.text) for uuid, observed in vms.items()}
        lost = {uuid: Allocation(PromiseState.PENDING, reason=reason) for uuid in vms if records[uuid].wants_something}
        judged = judge.judge_all(records, lost, self.snapshot.vms, self._backoff)
        with self._guard:
            self.snapshot = replace(self.snapshot, vms=judged)

    def note_ends(self, running: Set[str]) -> None:
        """Tell no more of VMs that have ended, though no pass can act on that now; their groups stay until one can.

        :param running: UUIDs of all VMs that run, or may do so.
        """
        with self._guard:
            known = self.snapshot.vms
            if known.keys() <= running:
                return
            # The next pass would find just the VMs that are told of, and nothing to do.
            self._settled = False
            self.snapshot = replace(self.snapshot, vms={uuid: known[uuid] for uuid in known if uuid in running})

    def read(self, topology: CacheTopology, policy: allocation.Policy) -> None:
        """Read resctrl and change nothing; the caller holds the lock, shared or exclusive.

        What the host has to give follows from the policy, too, and is told before the first plan.

        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        before = self.snapshot.resctrl
        now = resctrl_state.read(self._filesystem, before)
        # What changed is still to be planned with.
        self._settled = self._settled and now == before
        self.snapshot = replace(self.snapshot, resctrl=now, topology=topology, policy=policy)

    def request(self, change: Change, vms: Mapping[str, ObservedVm], tried: Trial | None = None) -> None:
        """Find out what each VM's flavor asks for, and which threads run the vCPUs that it names.

        That may take long and needs no lock. The caller takes the lock right after it, for :meth:`run`.

        :param tried: what is tried on one of the VMs.
        """
        before, requests = self._requested.trial, self._requested.requests
        # Where a trial begins or is over, there is something to plan.
        if tried != before:
            # Nothing else may be written: the lock is not held, and a start may just have found something to plan.
            self._settled = False
        if before is not None and before != tried and before.uuid in requests and requests[before.uuid].asked is None:
            # Without a promise, there is no group outside of which a VM can be.
            self._placer.outside.pop(before.uuid, None)
        again = {uuid: vms[uuid] for uuid in change.vms if uuid in vms}
        is_same = self._settled and not change.everything and list(requests) == list(vms)
        if not is_same or any(map(flavor_request.lacks_specs, again.values())):
            # Of all VMs at once: those that are left out are asked about no more.
            requests = flavor_request.read_all(vms, self._flavors, self._once)
        elif again:
            fresh = flavor_request.read_all(again, None, self._once)
            if any(requests[uuid] != asked for uuid, asked in fresh.items()):
                requests = {**requests, **fresh}
        changed = vms.keys() if change.everything else change.vms
        vcpus, born, is_cut_short = Vcpus(), frozenset[str](), False
        if any(asked.follows_vcpus for asked in requests.values()):
            vcpus, born = self._vcpu_watch.look(vms, requests, changed)
            is_cut_short = self._vcpu_watch.is_owing
        # A pass that did not get the lock leaves what it found to the next pass.
        self._requested = Requested(requests, vcpus, (self._requested.born | born) & vms.keys(), tried, is_cut_short)

    def run(
        self, change: Change, vms: Mapping[str, ObservedVm], topology: CacheTopology, policy: allocation.Policy
    ) -> bool:
        """Make one pass, if there is a reason for it; the caller called :meth:`request`, then took the exclusive lock.

        Other programs wait for the lock. So what does not fit into the pass's share of time is left to the next pass,
        which breaks no promise: ways are given out before tasks are moved, and never to two VMs.

        :returns: whether another pass right away gets further. That is so where time ran out, where another program
            changed groups, and where caches came or went.
        :raises vmqos.agent.reconcile.GaveWay: if no VM waits for this pass, and something is in a hurry.
        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        share = LockShare(is_wanted=lambda: self.is_wanted() or self._gives_way(), gives_way=self._gives_way)
        is_known = self.snapshot.resctrl is not None and policy == self.snapshot.policy
        # No VM waits for such a pass: it looks whether all is as it was. But a new policy is for the next start.
        is_audit = is_known and (change.everything or not change.vms)
        found = self._observe(change, vms, topology, is_same=is_known, can_wait=is_audit)
        if found is None:
            return True
        if found.is_calm and (again := self._place_alone(found, share)) is not None:
            return again
        self._unseen = found.unseen
        self.snapshot = replace(self.snapshot, policy=policy)
        records, planned = self._plan_with_trial(found)
        can_wait = is_audit and not (planned.plan.prepare or planned.plan.retire)
        self._give_way(can_wait)
        acted = self._act(found, records, planned, replace(share, can_wait=can_wait))
        if can_wait:
            # The numbers of links may belong to other monitoring groups by now.
            self.snapshot = replace(self.snapshot, resctrl=replace(found.resctrl, links=()))
            self._give_way(can_wait)
        return self._judge(planned, acted)

    def _observe(
        self, change: Change, vms: Mapping[str, ObservedVm], topology: CacheTopology, *, is_same: bool, can_wait: bool
    ) -> Observed | None:
        """Look at resctrl, and at the VMs that only resctrl or libvirt's status files tell of.

        :param is_same: whether resctrl could be read before, and the policy is that of the last plan.
        :param can_wait: whether no VM waits for this pass.
        :returns: ``None`` where caches came or went: the next pass finds out first on which caches each VM can run.
        """
        before = self.snapshot.resctrl
        self._give_way(can_wait)
        now = resctrl_state.read(self._filesystem, None if change.everything else before)
        self._give_way(can_wait)
        self._unfinished = False
        if before is None or now.mounted_as != self._mounted_as:
            # It may be mounted anew since a read that an earlier pass made at its end, too.
            self._begin_anew(now.mounted_as)
        elif change.everything:
            self._groups.forget()
        elif before.capabilities.l3_caches != now.capabilities.l3_caches:
            self._settled = False
            self.snapshot = replace(self.snapshot, resctrl=now)
            return None
        is_same = is_same and now == before and topology == self.snapshot.topology
        self.snapshot = replace(self.snapshot, resctrl=now, topology=topology)
        starting, outside = self.starts.under_way(vms, self._requested.vcpus.limits)
        self._placer.outside |= outside
        unseen = change.unseen | starting.keys()
        lost = self._lost.look(now, vms, unseen, everything=change.everything or before is None)
        unseen |= lost.vms.keys() | lost.classes.keys()
        self._give_way(can_wait)
        is_calm = self._settled and is_same and unseen == self._unseen and vms.keys() == self.snapshot.vms.keys()
        is_calm = is_calm and not (change.everything or self._backoff.due() or self._placer.is_owing)
        look_at = set(vms) if change.everything else {*change.vms, *self._requested.born}
        return Observed(now, vms, starting, unseen, look_at, is_calm)

    def _gives_way(self) -> bool:
        """Whether to leave to the next pass what it can do as well."""
        return (self.is_wanted() or self.has_news()) and self._courtesy.gives_way()

    def _give_way(self, can_wait: bool) -> None:
        """End the pass if it can wait, and something is in a hurry.

        :raises vmqos.agent.reconcile.GaveWay: if no VM waits for this pass, and something is in a hurry.
        """
        if can_wait and self._gives_way():
            self._settled, self._unfinished = False, True
            raise GaveWay

    def _place_alone(self, found: Observed, share: LockShare) -> bool | None:
        """Look at tasks, and move those that are elsewhere, where nothing calls for a plan.

        A VM that waits for ways does not wait for a look at all tasks of the host.

        :returns: whether another pass right away gets further; ``None`` where a whole pass is called for. That one
            looks at the tasks that were found astray, too.
        """
        changed = self._changed_in_tasks_alone(found.vms, found.look_at)
        if changed is None:
            return None
        strays = self._placer.strays(found.vms, share)
        if not (changed or strays or self._placer.is_owing):
            return False
        astray = self._changed_in_tasks_alone(found.vms, strays - changed.keys())
        if astray is not None and not self._placer.is_owing:
            return self._place_again(found, {**changed, **astray}, share)
        found.look_at.update(strays)
        return None

    def _changed_in_tasks_alone(self, vms: Mapping[str, ObservedVm], look_at: Set[str]) -> dict[str, VmRecord] | None:
        """The records of the VMs whose tasks may have changed, if all the planner knows of them is as it was.

        :param vms: the VMs of the last pass, as they are now.
        :param look_at: UUIDs of these VMs.
        :returns: ``None`` where a whole pass is called for.
        """
        known, aims = self.snapshot.vms, self._aims
        if not look_at:
            return {}
        if not look_at <= aims.keys():
            return None
        records = {uuid: self._record(uuid, vms[uuid], self._requested.trial) for uuid in look_at}
        for uuid, record in records.items():
            last = known[uuid]
            failed = any(self._backoff.get(key) is not None for key in (uuid, ("tasks", uuid), ("monitoring", uuid)))
            if failed or record.is_unknown or record.bears_on_plan != last.bears_on_plan:
                return None
        return records

    def _place_again(self, found: Observed, changed: Mapping[str, VmRecord], share: LockShare) -> bool:
        """Look at the tasks of some VMs, move those that are elsewhere, and judge these VMs: nothing else has changed.

        :param changed: the records of these VMs.
        :returns: whether another pass right away gets further.
        """
        now, aims, allocations, known = found.resctrl, self._aims, self._in_force, self.snapshot.vms
        self._placer.place(now, {uuid: aims[uuid] for uuid in changed}, changed.keys(), found.vms, frozenset(), share)
        after = resctrl_state.read(self._filesystem, replace(now, links=()))
        self._unfinished = self._placer.is_owing
        self._settled = after == now and not self._unfinished
        unmonitored = {uuid: known[uuid].unmonitored for uuid in changed}
        reasons = {uuid: why for uuid, why in unmonitored.items() if why not in ("", YET_TO_BE_MOVED)}
        records = self._with_places(changed, aims, reasons)
        unlimited, theirs = judge.no_limit(after), changed.keys() & allocations.keys()
        given = {uuid: judge.borne_out(allocations[uuid], after.layout, unlimited) for uuid in theirs}
        judged = judge.judge_all(judge.as_counted(records, after), given, known, self._backoff)
        self.snapshot = replace(self.snapshot, resctrl=after, vms={**known, **judged})
        self._requested = replace(self._requested, born=frozenset())
        return self._unfinished or after != now

    def start(self, records: Mapping[str, VmRecord]) -> dict[str, TaskGroup]:
        """Make the groups of VMs that libvirt is starting; the caller holds the exclusive lock, in any thread.

        The next passes keep these groups until they see the VMs, or the starts have ended
        (:class:`vmqos.agent.observe.starts.Starts`).

        :param records: the VMs by UUID, as far as their status files tell.
        :returns: where the tasks of each VM belong. A VM is left out if the planner has nothing for it, and all are if
            other VMs' tasks would have to move or a step fails: a pass does that better.
        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        before = self.snapshot
        if before.resctrl is None or self._granted is None:
            return {}
        now = resctrl_state.read_what_others_change(self._filesystem, before.resctrl)
        had = before.resctrl.capabilities.l3_caches
        if now.mounted_as != self._mounted_as or now.capabilities.l3_caches != had:
            # Where a cache came or went, a pass finds out first on which caches the VM can run.
            return {}
        asked = planner_requests.make(
            now, records.values(), before.topology, waiting := self._backoff.waiting(), self._granted
        )
        fresh = {one.uuid: one for one in asked}
        requests = (*(one for one in before.requests if one.uuid not in fresh), *asked)
        controls = self._classes_of_equals(now, fresh, waiting)
        if not controls:
            planned = self._plan_start(now, fresh, requests, waiting)
            if planned is None:
                return {}
            controls, requests, now = planned
        targets = {}
        for uuid, control in controls.items():
            targets[uuid] = self._monitoring.make_early(now, uuid, control)
            if targets[uuid].monitoring:
                now = now.monitoring(uuid, control)
        self.starts.begin({uuid: fresh[uuid] for uuid in controls})
        with self._guard:
            # The next pass reads resctrl. If it is as predicted here, there is nothing to plan anew.
            if self.snapshot.resctrl is not None:
                self.snapshot = replace(self.snapshot, resctrl=now, requests=requests)
        self._unseen |= controls.keys()
        return targets

    def _classes_of_equals(
        self, now: ResctrlState, fresh: Mapping[str, Request], waiting: Set[Hashable]
    ) -> dict[str, str]:
        """The classes that VMs join which ask for what a member of the class asks for, by UUID, where all of them do.

        Where nothing is left to be done, a further such member changes no group, and so no other VM's ways. A plan,
        which looks at each VM of the host, would say the same (tests/unit/allocation/test_planner_properties.py).

        :param fresh: what the planner would be asked for these VMs, by UUID.
        :returns: nothing where a plan is called for.
        """
        before, given = self.snapshot, self._in_force
        if not self._settled or now != before.resctrl or _has_tried_ways(before.vms) or self._before_trial:
            return {}
        classes = dict[str, str]()
        for uuid, request in fresh.items():
            equals = (
                given[one.uuid].group
                for one in before.requests
                if one.wants == request.wants and one.caches == request.caches and one.uuid in given
                if given[one.uuid].state is PromiseState.KEPT and owner_of(given[one.uuid].group) is Owner.CLASS
            )
            is_known = uuid in before.vms or any(one.uuid == uuid for one in before.requests)
            if is_known or uuid in waiting or (name := next(equals, None)) is None:
                return {}
            classes[uuid] = name
        return classes

    def _plan_start(
        self, now: ResctrlState, fresh: Mapping[str, Request], requests: tuple[Request, ...], waiting: Set[Hashable]
    ) -> tuple[dict[str, str], tuple[Request, ...], ResctrlState] | None:
        """Plan what VMs get that libvirt is starting, and make their control groups ready.

        :param fresh: what the planner is asked for these VMs, by UUID.
        :param requests: what it is asked for all VMs.
        :returns: the VMs' control groups by UUID, what the planner was asked for in the end, and resctrl as it is then;
            ``None`` where a pass does that better.
        """
        before, granted = self.snapshot, self._granted
        plan = allocation.plan(now.capabilities, now.layout, requests, before.policy, granted)
        lacking = [uuid for uuid in fresh if plan.allocations[uuid].state is not PromiseState.KEPT]
        if lacking and _has_tried_ways(before.vms):
            # Ways that are only tried on a VM are given to one that is promised them.
            promised = trial.untried(before, requests)
            without = allocation.plan(now.capabilities, now.layout, promised, before.policy, granted)
            if any(without.allocations[uuid].state is PromiseState.KEPT for uuid in lacking):
                requests, plan = promised, without
        plan = self._groups.without_refused(plan)
        # A group that a start before this one left may have a part of the ways: a pass tells of that.
        given = {uuid: plan.allocations[uuid] for uuid in fresh}
        whole = {one for one, its in given.items() if its.state is PromiseState.KEPT or not now.group(vm_group(one))}
        controls = {uuid: its.group for uuid, its in given.items() if its.group and uuid in whole}
        if not controls or _moves_others(plan, before.vms, fresh) or now.lacks_rmids(len(created(plan))):
            return None
        self._has_taken_ways = True
        if self._groups.execute(plan.prepare) is not None:
            self._settled = False
            return None
        if now != before.resctrl or _changes_others(plan, before.vms, fresh):
            # Another program has changed resctrl since the last pass, or this plan changes other VMs' ways. What the
            # agent tells of these VMs may be wrong now: the next pass plans anew, and tells of them anew.
            self._settled = False
        self._granted = self._remembered(plan, before.vms, waiting)
        return controls, requests, now.after(predict(now.layout, plan.prepare))

    def _plan_with_trial(self, found: Observed) -> tuple[dict[str, VmRecord], Planned]:
        """The VMs' records and the plan for them, with what is tried on one of them unless its ways are needed."""
        tried = self._requested.trial
        records = self._records(found.vms, tried)
        planned = self._plan(found, records)
        is_mounted_anew, self._is_mounted_anew, self.given_up = self._is_mounted_anew, False, None
        if tried is None:
            return records, planned
        # All VMs have filled all of the caches meanwhile: what the client has measured is of another time.
        if why := MOUNTED_ANEW if is_mounted_anew else self._why_given_up(tried, found.resctrl, records, planned):
            self.given_up = tried, why
            records = self._records(found.vms, None)
            planned = self._plan(found, records)
        return records, planned

    def _why_given_up(self, tried: Trial, now: ResctrlState, records: Mapping[str, VmRecord], planned: Planned) -> str:
        """Why what is tried on a VM can't be had, or its ways are needed by another VM; empty where neither is so."""
        if tried.uuid not in records or not records[tried.uuid].request.trial:
            return ""
        given = planned.plan.allocations.get(tried.uuid)
        if given is None or given.state is not PromiseState.KEPT:
            # A VM in a class would leave it for nothing: its promise goes before the limit that is tried, too.
            return given.reason.text if given is not None else "the VM is given nothing now"
        if not trial.tries_ways(records[tried.uuid].request):
            return ""
        requests = trial.untried(replace(self.snapshot, vms=records), planned.requests)
        plan = allocation.plan(now.capabilities, now.layout, requests, self.snapshot.policy, self._granted)
        return trial.what_others_lose(planned.plan, plan, tried.uuid)

    def _records(self, vms: Mapping[str, ObservedVm], tried: Trial | None) -> dict[str, VmRecord]:
        """Every VM with what its flavor asks for, in the order in which the VMs came.

        :param tried: what is tried on one of them.
        """
        records = (self._record(uuid, observed, tried) for uuid, observed in vms.items())
        return {record.uuid: record for record in sorted(records, key=lambda record: record.arrival)}

    def _record(self, uuid: str, observed: ObservedVm, tried: Trial | None) -> VmRecord:
        """A VM with what its flavor asks for, and its tasks where they were last found."""
        request, vcpus = self._requested.requests[uuid], self._requested.vcpus
        limit = vcpus.limits.get(uuid)
        if uuid in vcpus.unknown:
            request = replace(request, wants=None, unknown=vcpus.unknown[uuid])
        elif limit is not None:
            request = request.but(limit.problem)
        if tried is not None:
            request = trial.applied(request, observed.vm, tried)
        return VmRecord(
            observed,
            request,
            vcpus=limit,
            affinities=limit.affinities if limit is not None else tuple(vcpus.affinities.get(uuid, ())),
            tasks=self._placer.placed.get(uuid),
        )

    def _plan(self, found: Observed, records: Mapping[str, VmRecord]) -> Planned:
        """Plan which VM gets which ways. A VM that was not looked at, or whose flavor is unknown, keeps its ways."""
        now, starting, waiting = found.resctrl, found.starting, self._backoff.waiting()
        requests = planner_requests.make(now, records.values(), self.snapshot.topology, waiting, self._granted)
        requests += starting.values()
        # Whose vCPUs have no names yet keeps its tasks where they are: the threads of its vCPUs will be born there.
        parted = records.keys() & starting.keys()
        unknown = {uuid for uuid, record in records.items() if record.is_unknown}
        classes = self._lost.found.classes.keys()
        unseen = self._unseen - starting.keys() - classes
        if unknown or unseen or classes:
            # Of lost VMs all is known: groups are named after them.
            nameless = unseen - self._lost.found.vms.keys()
            members = keep_current.find_members(self._filesystem, now, nameless, unknown, found.vms)
            members = replace(members, claimed=members.claimed | classes)
            keep = unseen | unknown
            asked = (one for one in self.snapshot.requests if one.uuid in keep)
            before = {one.uuid: one for one in asked if self._had_something(one.uuid)}
            requests += keep_current.requests(now, keep, members, self._granted, before)
            parted |= members.parted | {uuid for uuid in unknown if now.counts_apart(uuid)}
        is_tried = self._requested.trial is not None and _has_tried_ways(records)
        if is_tried and not self._before_trial:
            self._before_trial = {group.name: group.masks for group in now.layout.groups}
        places = None if is_tried else self._before_trial
        plan = allocation.plan(
            now.capabilities,
            now.layout,
            requests,
            self.snapshot.policy,
            self._granted,
            places,
            self._has_taken_ways,
        )
        if not (is_tried or plan.prepare):
            self._before_trial = {}
        return Planned(self._groups.without_refused(plan), tuple(requests), frozenset(parted), waiting)

    def _had_something(self, uuid: str) -> bool:
        """Whether a VM had a part of its promise at the end of the last pass, or is owed ways."""
        given = self._in_force.get(uuid)
        return bool(given is not None and given.group) or any((self._granted or {}).get(vm_group(uuid), {}).values())

    def _act(self, found: Observed, records: Mapping[str, VmRecord], planned: Planned, share: LockShare) -> Acted:
        """Make the control groups, then monitoring groups, then move tasks, then remove what no VM needs.

        :param share: the time that this pass has.
        """
        plan = planned.plan
        now, failure = self._prepare(found.resctrl, records, planned)
        # A failure of what is not done for a VM any more would be due for ever.
        self._backoff.keep_only({key for uuid in records for key in _may_fail(uuid, self._requested.requests[uuid])})
        last = self._had_by(records)
        in_force = {uuid: judge.in_force(now, plan, last.get(uuid), its) for uuid, its in plan.allocations.items()}
        is_rest_possible = failure is not None and self._groups.blame(plan, in_force, failure, planned.waiting)
        if failure is not None:
            why = of_error(failure.error)
            stays = {uuid: judge.still_in(now, plan, uuid, last.get(uuid), its) for uuid, its in in_force.items()}
            if stays != in_force and failure.step.group in created(plan) and now.group(failure.step.group) is not None:
                # No task is in it. With the masks that the kernel gave it, it has ways that are to be given back.
                self._groups.execute([RemoveGroup(failure.step.group)])
                now = resctrl_state.read(self._filesystem, now)
            in_force = {uuid: judge.held_up(given, plan.allocations[uuid], why) for uuid, given in stays.items()}
        self._note_successes(planned, in_force, records)
        # VMs that ended have no tasks to move: their groups do not wait for other VMs' tasks.
        have_ended = all(vm_of(step.group) not in (None, *records) for step in plan.retire)
        is_complete = failure is None and have_ended and self._groups.retire(plan, in_force)
        if is_complete and plan.retire:
            now = replace(now, layout=predict(now.layout, plan.retire))
        records = self._move_tasks(now, records, planned, in_force, found.look_at, share)
        if failure is None and not have_ended:
            is_complete = self._groups.retire(plan, in_force)
        if is_complete:
            # Until another program removes it, a group of ours tells the planner that ways may be missing.
            self._has_taken_ways = _has_groups_of_ours(now, plan)
        if not (is_complete or _has_tried_ways(records)):
            # Where masks lie is no promise: what the kernel refuses is not tried again for that.
            self._before_trial = {}
        return Acted(records, in_force, is_complete, is_rest_possible)

    def _had_by(self, records: Mapping[str, VmRecord]) -> dict[str, Allocation]:
        """What was in force before for VMs that run still: what a VM had before it was started anew, it has no more."""
        known = self.snapshot.vms
        anew = {uuid for uuid in records.keys() & known.keys() if records[uuid].arrival != known[uuid].arrival}
        return {uuid: given for uuid, given in self._in_force.items() if uuid not in anew}

    def _prepare(
        self, now: ResctrlState, records: Mapping[str, VmRecord], planned: Planned
    ) -> tuple[ResctrlState, StepFailed | None]:
        """Make the control groups what the plan says, as far as VMs need them.

        :returns: resctrl as it is then, and the step that failed, if one did.
        """
        plan, fresh = planned.plan, created(planned.plan)
        if now.lacks_rmids(len(fresh)):
            self._monitoring.make_room(
                now, sorted(fresh), monitoring_plan.may_give_up(now, plan, records, self._unseen)
            )
            now = resctrl_state.read(self._filesystem, now)
        self._has_taken_ways = self._has_taken_ways or bool(plan.prepare)
        failure = self._groups.execute(plan.prepare)
        if failure is not None:
            return resctrl_state.read(self._filesystem, now), failure
        self._granted = self._remembered(plan, records, planned.waiting)
        return replace(now, layout=predict(now.layout, plan.prepare)), None

    def _move_tasks(
        self,
        now: ResctrlState,
        records: Mapping[str, VmRecord],
        planned: Planned,
        in_force: Mapping[str, Allocation],
        look_at: set[str],
        share: LockShare,
    ) -> dict[str, VmRecord]:
        """Make the VMs' monitoring groups and move the VMs' tasks there; return the records with the tasks' places."""
        self._placer.keep_only(records.keys())
        ours = {uuid: record for uuid, record in records.items() if not record.request.hands_off}
        controls = {uuid: in_force[uuid].group if uuid in in_force else "" for uuid in ours}
        left = {uuid for uuid in planned.parted & controls.keys() if controls[uuid]}
        with_threads = {uuid for uuid, record in records.items() if record.threads is not None}
        left_behind = monitoring_plan.left_behind(now, ours, controls)
        arranged = self._monitoring.arrange(now, controls, self._unseen, with_threads | left, left_behind, share)
        # A VM without a promise gets only counters: its tasks are moved once its monitoring group is there.
        later = {uuid for uuid in arranged.later if not controls[uuid]}
        aims = {
            uuid: arranged.aim(uuid, controls[uuid], record.threads)
            for uuid, record in ours.items()
            if uuid not in left | later
        }
        vms = {uuid: record.observed for uuid, record in records.items()}
        look_at = look_at | self._placer.strays(vms, share)
        self._placer.place(now, aims, look_at, vms, arranged.fresh | created(planned.plan), share)
        self._unfinished = self._placer.is_owing or bool(arranged.later)
        self._placer.note_removed(self._monitoring.remove(arranged.stale))
        self._in_force, self._aims = in_force, aims
        return self._with_places(records, aims, arranged.unmonitored)

    def _with_places(
        self, records: Mapping[str, VmRecord], aims: Mapping[str, TaskGroups], unmonitored: Mapping[str, str]
    ) -> dict[str, VmRecord]:
        """The records with the places where the tasks were found, or are now.

        :param unmonitored: why VMs have no monitoring group, by UUID.
        """
        placed = self._placer.placed
        elsewhere = {
            uuid
            for uuid, record in records.items()
            if not record.request.hands_off
            and (uuid not in placed or (uuid in aims and not placed[uuid].aims_at(aims[uuid])))
        }
        unmonitored = {**dict.fromkeys(elsewhere, YET_TO_BE_MOVED), **unmonitored}
        return {
            uuid: replace(
                record,
                tasks=placed.get(uuid),
                unmonitored=unmonitored.get(uuid, ""),
                outside=None if record.request.is_trial_alone else self._placer.outside.get(uuid),
            )
            for uuid, record in records.items()
        }

    def _judge(self, planned: Planned, acted: Acted) -> bool:
        """Read resctrl back and judge each promise; return whether another pass right away gets further."""
        # The state before can't be reused by its number of links: they may belong to other monitoring groups now.
        before = self.snapshot.resctrl
        now = resctrl_state.read(self._filesystem, replace(before, links=()) if before is not None else None)
        unlimited = judge.no_limit(now)
        borne_out = {uuid: judge.borne_out(given, now.layout, unlimited) for uuid, given in acted.in_force.items()}
        is_meddled = any(borne_out[uuid] is not given for uuid, given in acted.in_force.items())
        # The plan was made from the state before. Other programs may have changed resctrl since.
        is_changed = now != before or bool(planned.plan.prepare or planned.plan.retire)
        self._settled = acted.is_complete and not (is_changed or is_meddled or self._unfinished)
        counted = judge.as_counted(acted.records, now)
        records = judge.judge_all(counted, borne_out, self.snapshot.vms, self._backoff)
        self.snapshot = replace(self.snapshot, resctrl=now, vms=records, requests=planned.requests)
        self._requested = replace(self._requested, born=frozenset())
        waiting = any(given.state is not PromiseState.KEPT for given in borne_out.values())
        has_freed = acted.is_complete and bool(planned.plan.retire)
        is_mounted_anew = now.mounted_as != self._mounted_as
        return is_meddled or is_mounted_anew or acted.is_rest_possible or self._unfinished or (has_freed and waiting)

    def _note_successes(
        self, planned: Planned, in_force: Mapping[str, Allocation], records: Mapping[str, VmRecord]
    ) -> None:
        """Forget the failures of VMs that have what the plan gave them, and of VMs that want nothing any more.

        To be given what it has already is no success for a VM that waits.
        """
        given = planned.plan.allocations
        for uuid, record in records.items():
            has_all = uuid in in_force and in_force[uuid] is given[uuid] and uuid not in planned.waiting
            if has_all or record.request.wants is None:
                self._backoff.succeed(uuid)

    def _remembered(
        self, plan: Plan, records: Mapping[str, VmRecord], waiting: Set[Hashable]
    ) -> dict[str, Mapping[int, int]]:
        """How many ways a plan that was carried out grants to each group, for the next plan.

        For some VMs the planner was asked for what they have now, and not for what their flavors say. For these VMs the
        earlier numbers stay. Without earlier numbers, a cache on which such a VM seems to have nothing is left out: an
        agent that starts anew does not know whether another program spoilt what the VM had there.

        :param waiting: UUIDs of the VMs for which something failed a short time ago, among other keys of failures.
        """
        keep = {uuid for uuid, record in records.items() if record.is_unknown or uuid in waiting}
        known, found = self._granted or {}, dict(plan.granted)
        for name in map(vm_group, keep | self._unseen):
            if name in known:
                found[name] = known[name]
            elif name in found:
                found[name] = {cache: ways for cache, ways in found[name].items() if ways}
        return found


def _may_fail(uuid: str, request: FlavorRequest) -> Iterator[Hashable]:
    """The keys of what can fail for a VM."""
    yield uuid
    if not request.hands_off:
        yield "monitoring", uuid
        yield "tasks", uuid
    if request.follows_vcpus:
        yield "vcpus", uuid


def _has_tried_ways(records: Mapping[str, VmRecord]) -> bool:
    """Whether a VM may have other ways than it is promised, because they are tried."""
    return any(trial.tries_ways(record.request) for record in records.values())


def _has_groups_of_ours(now: ResctrlState, plan: Plan) -> bool:
    """Whether a VM or a class has a control group once a plan was carried out.

    :param now: resctrl without the groups that the plan retires, or with them.
    """
    gone = {step.group for step in plan.retire}
    return any(group.owner in (Owner.VM, Owner.CLASS) and group.name not in gone for group in now.layout.groups)


def _moves_others(plan: Plan, vms: Mapping[str, VmRecord], fresh: Container[str]) -> bool:
    """Whether a plan has tasks of VMs move that run already.

    :param vms: these VMs as the last pass left them, by UUID.
    :param fresh: UUIDs of the VMs that are being started, which may be among them until a pass knows of their end.
    """
    return any(
        given.group != vms[uuid].allocation.group
        for uuid, given in plan.allocations.items()
        if uuid in vms and uuid not in fresh
    )


def _changes_others(plan: Plan, vms: Mapping[str, VmRecord], fresh: Container[str]) -> bool:
    """Whether a plan changes groups of VMs that run already; the default group, which gives no VM anything, is none.

    :param vms: these VMs as the last pass left them, by UUID.
    :param fresh: UUIDs of the VMs that are being started.
    """
    theirs = {record.allocation.group for uuid, record in vms.items() if uuid not in fresh} - {DEFAULT_GROUP}
    return any(step.group in theirs for step in plan.prepare)
