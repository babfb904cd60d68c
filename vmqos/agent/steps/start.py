# SPDX-License-Identifier: Apache-2.0
"""A pass for VMs that libvirt is starting: their groups are made before the VMs run. It asks nobody anything."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Set
from dataclasses import dataclass, field, replace

from vmqos import allocation
from vmqos.agent import planner_requests, trial
from vmqos.agent.act.control_groups import ControlGroups, created, predict
from vmqos.agent.act.monitoring_groups import MonitoringGroups
from vmqos.agent.act.move_tasks import TaskGroup
from vmqos.agent.observe.starts import Starts
from vmqos.agent.steps.memory import Memory
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Plan, PromiseState, Request
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import DEFAULT_GROUP, Owner, owner_of, vm_group
from vmqos.host import resctrl_state
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.filesystem import Filesystem


@dataclass(eq=False)
class StartStep:
    """Makes the groups of VMs that libvirt is starting.

    :ivar filesystem: resctrl.
    :ivar backoff: failures, by VM UUID.
    :ivar groups: carries out plans.
    :ivar monitoring: makes monitoring groups.
    :ivar memory: what passes and starts know of each other.
    """

    filesystem: Filesystem
    backoff: Backoff
    groups: ControlGroups
    monitoring: MonitoringGroups
    memory: Memory
    starts: Starts = field(init=False)

    def __post_init__(self) -> None:
        self.starts = Starts(self.filesystem)

    def start(self, records: Mapping[str, VmRecord]) -> dict[str, TaskGroup]:
        """Make the groups of VMs that libvirt is starting; the caller holds the exclusive lock, in any thread.

        The next passes keep these groups until they see the VMs, or the starts have ended
        (:class:`vmqos.agent.observe.starts.Starts`).

        :param records: the VMs by UUID, as far as their status files tell.
        :returns: where the tasks of each VM belong. A VM is left out if the planner has nothing for it, and all are if
            other VMs' tasks would have to move or a step fails: a pass does that better.
        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        before = self.memory.snapshot
        if before.resctrl is None or self.memory.granted is None:
            return {}
        now = resctrl_state.read_what_others_change(self.filesystem, before.resctrl)
        had = before.resctrl.capabilities.l3_caches
        if now.mounted_as != self.memory.mounted_as or now.capabilities.l3_caches != had:
            # Where a cache came or went, a pass finds out first on which caches the VM can run.
            return {}
        asked = planner_requests.make(
            now, records.values(), before.topology, waiting := self.backoff.waiting(), self.memory.granted
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
            targets[uuid] = self.monitoring.make_early(now, uuid, control)
            if targets[uuid].monitoring:
                now = now.monitoring(uuid, control)
        self.starts.begin({uuid: fresh[uuid] for uuid in controls})
        with self.memory.guard:
            # The next pass reads resctrl. If it is as predicted here, there is nothing to plan anew.
            if self.memory.snapshot.resctrl is not None:
                self.memory.snapshot = replace(self.memory.snapshot, resctrl=now, requests=requests)
        self.memory.unseen |= controls.keys()
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
        before, given = self.memory.snapshot, self.memory.in_force
        if not self.memory.is_settled or now != before.resctrl or self.memory.before_trial:
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
        return {} if trial.tries_any_ways(before.vms) else classes

    def _plan_start(
        self, now: ResctrlState, fresh: Mapping[str, Request], requests: tuple[Request, ...], waiting: Set[Hashable]
    ) -> tuple[dict[str, str], tuple[Request, ...], ResctrlState] | None:
        """Plan what VMs get that libvirt is starting, and make their control groups ready.

        :param fresh: what the planner is asked for these VMs, by UUID.
        :param requests: what it is asked for all VMs.
        :returns: the VMs' control groups by UUID, what the planner was asked for in the end, and resctrl as it is then;
            ``None`` where a pass does that better.
        """
        before, granted = self.memory.snapshot, self.memory.granted
        plan = allocation.plan(now.capabilities, now.layout, requests, before.policy, granted)
        lacking = [uuid for uuid in fresh if plan.allocations[uuid].state is not PromiseState.KEPT]
        if lacking and trial.tries_any_ways(before.vms):
            # Ways that are only tried on a VM are given to one that is promised them.
            promised = trial.untried(before, requests)
            without = allocation.plan(now.capabilities, now.layout, promised, before.policy, granted)
            if any(without.allocations[uuid].state is PromiseState.KEPT for uuid in lacking):
                requests, plan = promised, without
        plan = self.groups.without_refused(plan)
        # A group that a start before this one left may have a part of the ways: a pass tells of that.
        given = {uuid: plan.allocations[uuid] for uuid in fresh}
        whole = {one for one, its in given.items() if its.state is PromiseState.KEPT or not now.group(vm_group(one))}
        controls = {uuid: its.group for uuid, its in given.items() if its.group and uuid in whole}
        if not controls or _moves_others(plan, before.vms, fresh) or now.lacks_rmids(len(created(plan))):
            return None
        self.memory.has_taken_ways = True
        if self.groups.execute(plan.prepare) is not None:
            self.memory.is_settled = False
            return None
        if now != before.resctrl or _changes_others(plan, before.vms, fresh):
            # Another program has changed resctrl since the last pass, or this plan changes other VMs' ways. What the
            # agent tells of these VMs may be wrong now: the next pass plans anew, and tells of them anew.
            self.memory.is_settled = False
        self.memory.remember(plan, before.vms, waiting)
        return controls, requests, now.after(predict(now.layout, plan.prepare))


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
