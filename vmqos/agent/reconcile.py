# SPDX-License-Identifier: Apache-2.0
"""One pass: observe, request, plan, act, judge. The loop has looked at the VMs already; all else is here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from vmqos import allocation
from vmqos.agent import judge
from vmqos.agent.act.control_groups import ControlGroups
from vmqos.agent.act.monitoring_groups import MonitoringGroups
from vmqos.agent.act.task_placer import YET_TO_BE_MOVED, Placer
from vmqos.agent.courtesy import Courtesy, LockShare
from vmqos.agent.observe import flavor_request
from vmqos.agent.observe.cache_vcpus import Vcpus, VcpuWatch
from vmqos.agent.observe.lost_vms import LostVms
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.told_flavors import ToldFlavors
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.steps import Acted, Change, Observed, Planned, Requested
from vmqos.agent.steps.act import ActStep
from vmqos.agent.steps.memory import Memory
from vmqos.agent.steps.plan import PlanStep
from vmqos.agent.steps.start import StartStep
from vmqos.agent.trial import Trial
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, PromiseState
from vmqos.daemon.backoff import Backoff
from vmqos.daemon.log_once import LogOnce
from vmqos.host import resctrl_state
from vmqos.hypervisor.model import Process
from vmqos.reason import Reason
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.topology import CacheTopology

LOG = logging.getLogger(__name__)


class GaveWay(Exception):
    """A pass that no VM waits for has ended early, because something is in a hurry: it is to be made again.

    It has changed no control group.
    """


class Reconciler:
    """Makes passes.

    What one of them knows, the next one has (:class:`vmqos.agent.steps.memory.Memory`): a pass over an unchanged host
    is cheap.

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
        self._placer = Placer(filesystem, backoff)
        self._once = LogOnce(LOG)
        self._vcpu_watch = VcpuWatch(backoff, self._once)
        self._lost = LostVms(filesystem)
        self._memory = memory = Memory()
        monitoring = MonitoringGroups(filesystem, backoff)
        self._plan_step = PlanStep(filesystem, backoff, self._groups, self._lost, self._placer, memory)
        self._act_step = ActStep(filesystem, backoff, self._groups, monitoring, self._placer, memory)
        self.starting = StartStep(filesystem, backoff, self._groups, monitoring, memory)
        self.is_wanted: Callable[[], bool] = lambda: False
        """Says whether another thread of the agent, which is in a hurry, waits for the lock on resctrl."""
        self.has_news: Callable[[], bool] = lambda: False
        """Says whether the end or a change of a VM waits for the next pass."""

    @property
    def snapshot(self) -> Snapshot:
        """What is known at the end of the last pass."""
        return self._memory.snapshot

    @property
    def given_up(self) -> tuple[Trial, str] | None:
        """The trial that the last whole pass did not carry out, and why."""
        return self._plan_step.given_up

    @property
    def lost(self) -> frozenset[Process]:
        """The processes of VMs that libvirt has lost: once one has ended, a pass removes what was kept for it."""
        return self._lost.found.processes

    @property
    def is_unfinished(self) -> bool:
        """Whether the last pass left something undone: its time, or its share of the lock, was over, or it gave way."""
        return self._memory.is_unfinished or self._memory.requested.is_cut_short

    def forget(self) -> None:
        """Trust nothing that earlier passes read."""
        self._placer.forget()
        self._groups.forget()
        self._memory.forget()

    def _begin_anew(self, mounted_as: tuple[int, int, int]) -> None:
        """Trust nothing that earlier passes read; where resctrl is mounted anew, forget what has failed, too.

        :param mounted_as: the mount of now.
        """
        self.forget()
        if self._memory.mounted_as not in (None, mounted_as):
            self._backoff.keep_only(())
            self._memory.is_mounted_anew, self._memory.has_taken_ways = True, False
        self._memory.mounted_as = mounted_as

    def lose(self, reason: Reason, vms: Mapping[str, ObservedVm]) -> None:
        """Note that resctrl is gone, and all groups with it: no promise is kept until it is back.

        :param reason: why resctrl is gone.
        """
        self.forget()
        requests = flavor_request.read_all(vms, self._flavors, self._once)
        records = {uuid: VmRecord(observed, requests[uuid], unmonitored=reason.text) for uuid, observed in vms.items()}
        lost = {uuid: Allocation(PromiseState.PENDING, reason=reason) for uuid in vms if records[uuid].wants_something}
        judged = judge.judge_all(records, lost, self._memory.snapshot.vms, self._backoff)
        with self._memory.guard:
            self._memory.snapshot = replace(self._memory.snapshot, vms=judged)

    def note_ends(self, running: Set[str]) -> None:
        """Tell no more of VMs that have ended, though no pass can act on that now; their groups stay until one can.

        :param running: UUIDs of all VMs that run, or may do so.
        """
        with self._memory.guard:
            known = self._memory.snapshot.vms
            if known.keys() <= running:
                return
            # The next pass would find just the VMs that are told of, and nothing to do.
            self._memory.is_settled = False
            self._memory.snapshot = replace(
                self._memory.snapshot, vms={uuid: known[uuid] for uuid in known if uuid in running}
            )

    def read(self, topology: CacheTopology, policy: allocation.Policy) -> None:
        """Read resctrl and change nothing; the caller holds the lock, shared or exclusive.

        What the host has to give follows from the policy, too, and is told before the first plan.

        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        before = self._memory.snapshot.resctrl
        now = resctrl_state.read(self._filesystem, before)
        # What changed is still to be planned with.
        self._memory.is_settled = self._memory.is_settled and now == before
        self._memory.snapshot = replace(self._memory.snapshot, resctrl=now, topology=topology, policy=policy)

    def request(self, change: Change, vms: Mapping[str, ObservedVm], tried: Trial | None = None) -> None:
        """Find out what each VM's flavor asks for, and which threads run the vCPUs that it names.

        That may take long and needs no lock. The caller takes the lock right after it, for :meth:`run`.

        :param tried: what is tried on one of the VMs.
        """
        before, requests = self._memory.requested.trial, self._memory.requested.requests
        # Where a trial begins or is over, there is something to plan.
        if tried != before:
            # Nothing else may be written: the lock is not held, and a start may just have found something to plan.
            self._memory.is_settled = False
        if before is not None and before != tried and before.uuid in requests and requests[before.uuid].asked is None:
            # Without a promise, there is no group outside of which a VM can be.
            self._placer.outside.pop(before.uuid, None)
        again = {uuid: vms[uuid] for uuid in change.vms if uuid in vms}
        is_same = self._memory.is_settled and not change.everything and list(requests) == list(vms)
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
        self._memory.requested = Requested(
            requests, vcpus, (self._memory.requested.born | born) & vms.keys(), tried, is_cut_short
        )

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
        is_known = self._memory.snapshot.resctrl is not None and policy == self._memory.snapshot.policy
        # No VM waits for such a pass: it looks whether all is as it was. But a new policy is for the next start.
        is_audit = is_known and (change.everything or not change.vms)
        found = self._observe(change, vms, topology, is_same=is_known, can_wait=is_audit)
        if found is None:
            return True
        if found.is_calm and (again := self._place_alone(found, share)) is not None:
            return again
        self._memory.unseen = found.unseen
        self._memory.snapshot = replace(self._memory.snapshot, policy=policy)
        records, planned = self._plan_step.plan(found)
        can_wait = is_audit and not (planned.plan.prepare or planned.plan.retire)
        self._give_way(can_wait)
        acted = self._act_step.act(found, records, planned, replace(share, can_wait=can_wait))
        if can_wait:
            # The numbers of links may belong to other monitoring groups by now.
            self._memory.snapshot = replace(self._memory.snapshot, resctrl=replace(found.resctrl, links=()))
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
        before = self._memory.snapshot.resctrl
        self._give_way(can_wait)
        now = resctrl_state.read(self._filesystem, None if change.everything else before)
        self._give_way(can_wait)
        self._memory.is_unfinished = False
        if before is None or now.mounted_as != self._memory.mounted_as:
            # It may be mounted anew since a read that an earlier pass made at its end, too.
            self._begin_anew(now.mounted_as)
        elif change.everything:
            self._groups.forget()
        elif before.capabilities.l3_caches != now.capabilities.l3_caches:
            self._memory.is_settled = False
            self._memory.snapshot = replace(self._memory.snapshot, resctrl=now)
            return None
        is_same = is_same and now == before and topology == self._memory.snapshot.topology
        self._memory.snapshot = replace(self._memory.snapshot, resctrl=now, topology=topology)
        starting, outside = self.starting.starts.under_way(vms, self._memory.requested.vcpus.limits)
        self._placer.outside |= outside
        unseen = change.unseen | starting.keys()
        lost = self._lost.look(now, vms, unseen, everything=change.everything or before is None)
        unseen |= lost.vms.keys() | lost.classes.keys()
        self._give_way(can_wait)
        is_calm = (
            self._memory.is_settled
            and is_same
            and unseen == self._memory.unseen
            and vms.keys() == self._memory.snapshot.vms.keys()
        )
        is_calm = is_calm and not (change.everything or self._backoff.due() or self._placer.is_owing)
        look_at = set(vms) if change.everything else {*change.vms, *self._memory.requested.born}
        return Observed(now, vms, starting, unseen, look_at, is_calm)

    def _gives_way(self) -> bool:
        """Whether to leave to the next pass what it can do as well."""
        return (self.is_wanted() or self.has_news()) and self._courtesy.gives_way()

    def _give_way(self, can_wait: bool) -> None:
        """End the pass if it can wait, and something is in a hurry.

        :raises vmqos.agent.reconcile.GaveWay: if no VM waits for this pass, and something is in a hurry.
        """
        if can_wait and self._gives_way():
            self._memory.is_settled, self._memory.is_unfinished = False, True
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
        known, aims = self._memory.snapshot.vms, self._memory.aims
        if not look_at:
            return {}
        if not look_at <= aims.keys():
            return None
        records = {uuid: self._plan_step.record(uuid, vms[uuid], self._memory.requested.trial) for uuid in look_at}
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
        now, aims, allocations, known = (
            found.resctrl,
            self._memory.aims,
            self._memory.in_force,
            self._memory.snapshot.vms,
        )
        self._placer.place(now, {uuid: aims[uuid] for uuid in changed}, changed.keys(), found.vms, frozenset(), share)
        after = resctrl_state.read(self._filesystem, replace(now, links=()))
        self._memory.is_unfinished = self._placer.is_owing
        self._memory.is_settled = after == now and not self._memory.is_unfinished
        unmonitored = {uuid: known[uuid].unmonitored for uuid in changed}
        reasons = {uuid: why for uuid, why in unmonitored.items() if why not in ("", YET_TO_BE_MOVED)}
        records = self._act_step.with_places(changed, aims, reasons)
        unlimited, theirs = judge.no_limit(after), changed.keys() & allocations.keys()
        given = {uuid: judge.borne_out(allocations[uuid], after.layout, unlimited) for uuid in theirs}
        judged = judge.judge_all(judge.as_counted(records, after), given, known, self._backoff)
        self._memory.snapshot = replace(self._memory.snapshot, resctrl=after, vms={**known, **judged})
        self._memory.requested = replace(self._memory.requested, born=frozenset())
        return self._memory.is_unfinished or after != now

    def _judge(self, planned: Planned, acted: Acted) -> bool:
        """Read resctrl back and judge each promise; return whether another pass right away gets further."""
        # The state before can't be reused by its number of links: they may belong to other monitoring groups now.
        before = self._memory.snapshot.resctrl
        now = resctrl_state.read(self._filesystem, replace(before, links=()) if before is not None else None)
        unlimited = judge.no_limit(now)
        borne_out = {uuid: judge.borne_out(given, now.layout, unlimited) for uuid, given in acted.in_force.items()}
        is_meddled = any(borne_out[uuid] is not given for uuid, given in acted.in_force.items())
        # The plan was made from the state before. Other programs may have changed resctrl since.
        is_changed = now != before or bool(planned.plan.prepare or planned.plan.retire)
        self._memory.is_settled = acted.is_complete and not (is_changed or is_meddled or self._memory.is_unfinished)
        counted = judge.as_counted(acted.records, now)
        records = judge.judge_all(counted, borne_out, self._memory.snapshot.vms, self._backoff)
        self._memory.snapshot = replace(self._memory.snapshot, resctrl=now, vms=records, requests=planned.requests)
        self._memory.requested = replace(self._memory.requested, born=frozenset())
        waiting = any(given.state is not PromiseState.KEPT for given in borne_out.values())
        has_freed = acted.is_complete and bool(planned.plan.retire)
        is_mounted_anew = now.mounted_as != self._memory.mounted_as
        return (
            is_meddled
            or is_mounted_anew
            or acted.is_rest_possible
            or self._memory.is_unfinished
            or (has_freed and waiting)
        )
