# SPDX-License-Identifier: Apache-2.0
"""The third step of a pass: which VM gets which ways, and with which writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vmqos import allocation
from vmqos.agent import keep_current, planner_requests, trial
from vmqos.agent.act.control_groups import ControlGroups
from vmqos.agent.act.task_placer import Placer
from vmqos.agent.observe.lost_vms import LostVms
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.steps import Observed, Planned
from vmqos.agent.steps.memory import Memory
from vmqos.agent.trial import Trial
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import PromiseState
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import vm_group
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.filesystem import Filesystem

MOUNTED_ANEW = "resctrl was mounted anew, and no VM had a group meanwhile"
"""Why a trial is over."""


@dataclass(eq=False)
class PlanStep:
    """Plans, and has the plan leave alone what a trial, or what the kernel refused, forbids.

    :ivar filesystem: resctrl.
    :ivar backoff: failures, by VM UUID.
    :ivar groups: knows what the kernel refused.
    :ivar lost: the VMs that libvirt does not list any more.
    :ivar placer: knows where the VMs' tasks are.
    :ivar memory: what earlier passes left.
    :ivar given_up: the trial that the last whole pass did not carry out, and why: because others need what it takes,
        mostly.
    """

    filesystem: Filesystem
    backoff: Backoff
    groups: ControlGroups
    lost: LostVms
    placer: Placer
    memory: Memory
    given_up: tuple[Trial, str] | None = None

    def plan(self, found: Observed) -> tuple[dict[str, VmRecord], Planned]:
        """The VMs' records and the plan for them, with what is tried on one of them unless its ways are needed."""
        tried = self.memory.requested.trial
        records = self._records(found.vms, tried)
        planned = self._plan(found, records)
        is_mounted_anew, self.memory.is_mounted_anew, self.given_up = self.memory.is_mounted_anew, False, None
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
        given, tries_ways = planned.plan.allocations.get(tried.uuid), trial.tries_ways(records[tried.uuid].request)
        if given is None:
            return "the VM is given nothing now"
        if given.state is not PromiseState.KEPT and (tries_ways or not given.throttles):
            # A VM in a class would leave it for nothing: its promise goes before the limit that is tried, too.
            return given.reason.text
        if not tries_ways:
            return ""
        requests = trial.untried(replace(self.memory.snapshot, vms=records), planned.requests)
        plan = allocation.plan(now.capabilities, now.layout, requests, self.memory.snapshot.policy, self.memory.granted)
        return trial.what_others_lose(planned.plan, plan, tried.uuid)

    def _records(self, vms: Mapping[str, ObservedVm], tried: Trial | None) -> dict[str, VmRecord]:
        """Every VM with what its flavor asks for, in the order in which the VMs came.

        :param tried: what is tried on one of them.
        """
        records = (self.record(uuid, observed, tried) for uuid, observed in vms.items())
        return {record.uuid: record for record in sorted(records, key=lambda record: record.arrival)}

    def record(self, uuid: str, observed: ObservedVm, tried: Trial | None) -> VmRecord:
        """A VM with what its flavor asks for, and its tasks where they were last found."""
        request, vcpus = self.memory.requested.requests[uuid], self.memory.requested.vcpus
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
            tasks=self.placer.placed.get(uuid),
        )

    def _plan(self, found: Observed, records: Mapping[str, VmRecord]) -> Planned:
        """Plan which VM gets which ways. A VM that was not looked at, or whose flavor is unknown, keeps its ways."""
        now, starting, waiting = found.resctrl, found.starting, self.backoff.waiting()
        requests = planner_requests.make(
            now, records.values(), self.memory.snapshot.topology, waiting, self.memory.granted
        )
        requests += starting.values()
        # Whose vCPUs have no names yet keeps its tasks where they are: the threads of its vCPUs will be born there.
        parted = records.keys() & starting.keys()
        unknown = {uuid for uuid, record in records.items() if record.is_unknown}
        classes = self.lost.found.classes.keys()
        unseen = self.memory.unseen - starting.keys() - classes
        if unknown or unseen or classes:
            # Of lost VMs all is known: groups are named after them.
            nameless = unseen - self.lost.found.vms.keys()
            members = keep_current.find_members(self.filesystem, now, nameless, unknown, found.vms)
            members = replace(members, claimed=members.claimed | classes)
            keep = unseen | unknown
            asked = (one for one in self.memory.snapshot.requests if one.uuid in keep)
            before = {one.uuid: one for one in asked if self._had_something(one.uuid)}
            requests += keep_current.requests(now, keep, members, self.memory.granted, before)
            parted |= members.parted | {uuid for uuid in unknown if now.counts_apart(uuid)}
        is_tried = self.memory.requested.trial is not None and trial.tries_any_ways(records)
        if is_tried and not self.memory.before_trial:
            self.memory.before_trial = {group.name: group.masks for group in now.layout.groups}
        places = None if is_tried else self.memory.before_trial
        plan = allocation.plan(
            now.capabilities,
            now.layout,
            requests,
            self.memory.snapshot.policy,
            self.memory.granted,
            places,
            self.memory.has_taken_ways,
        )
        if not (is_tried or plan.prepare):
            self.memory.before_trial = {}
        return Planned(self.groups.without_refused(plan), tuple(requests), frozenset(parted), waiting)

    def _had_something(self, uuid: str) -> bool:
        """Whether a VM had a part of its promise at the end of the last pass, or is owed ways."""
        given = self.memory.in_force.get(uuid)
        return bool(given is not None and given.group) or any(
            (self.memory.granted or {}).get(vm_group(uuid), {}).values()
        )
