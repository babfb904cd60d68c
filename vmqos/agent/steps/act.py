# SPDX-License-Identifier: Apache-2.0
"""The fourth step of a pass: control groups, monitoring groups, tasks; then what no VM needs is removed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from vmqos.agent import judge, keep_current, trial
from vmqos.agent.act import monitoring_plan
from vmqos.agent.act.control_groups import ControlGroups, StepFailed, created, predict
from vmqos.agent.act.monitoring_groups import MonitoringGroups
from vmqos.agent.act.move_tasks import TaskGroups
from vmqos.agent.act.task_placer import YET_TO_BE_MOVED, Placer
from vmqos.agent.courtesy import LockShare
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.steps import Acted, Observed, Planned
from vmqos.agent.steps.memory import Memory
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Plan, RemoveGroup
from vmqos.daemon.backoff import Backoff
from vmqos.group_names import Owner, owner_of, vm_of
from vmqos.host import resctrl_state
from vmqos.host.resctrl_state import ResctrlState
from vmqos.reason import of_error
from vmqos.resctrl.filesystem import Filesystem


@dataclass(eq=False)
class ActStep:
    """Carries out a plan, as far as the kernel lets it, and says what each VM has then.

    :ivar filesystem: resctrl.
    :ivar backoff: failures, by VM UUID; those of monitoring groups by ``("monitoring", uuid)``, of tasks by
        ``("tasks", uuid)``, of vCPUs by ``("vcpus", uuid)``.
    :ivar groups: carries out plans.
    :ivar monitoring: makes monitoring groups.
    :ivar placer: moves tasks.
    :ivar memory: what earlier passes left, and what this one leaves.
    """

    filesystem: Filesystem
    backoff: Backoff
    groups: ControlGroups
    monitoring: MonitoringGroups
    placer: Placer
    memory: Memory

    def act(self, found: Observed, records: Mapping[str, VmRecord], planned: Planned, share: LockShare) -> Acted:
        """Make the control groups, then monitoring groups, then move tasks, then remove what no VM needs.

        :param share: the time that this pass has.
        """
        plan = planned.plan
        now, failure = self._prepare(found.resctrl, records, planned)
        # A failure of what is not done for a VM any more would be due for ever.
        self.backoff.keep_only(
            {key for uuid in records for key in _may_fail(uuid, self.memory.requested.requests[uuid])}
        )
        now, in_force, is_rest_possible = self._in_force(now, failure, found.resctrl, records, planned)
        self._note_successes(planned, in_force, records)
        # VMs that ended have no tasks to move: their groups do not wait for other VMs' tasks.
        have_ended = all(vm_of(step.group) not in (None, *records) for step in plan.retire)
        is_complete = failure is None and have_ended and self.groups.retire(plan, in_force)
        if is_complete and plan.retire:
            now = replace(now, layout=predict(now.layout, plan.retire))
        records = self._move_tasks(now, records, planned, in_force, found.look_at, share)
        if failure is None and not have_ended:
            is_complete = self.groups.retire(plan, in_force)
        if is_complete:
            # Until another program removes it, a group of ours tells the planner that ways may be missing.
            self.memory.has_taken_ways = _has_groups_of_ours(now, plan)
        if not (is_complete or trial.tries_any_ways(records)):
            # Where masks lie is no promise: what the kernel refuses is not tried again for that.
            self.memory.before_trial = {}
        return Acted(records, in_force, is_complete, is_rest_possible)

    def _in_force(
        self,
        now: ResctrlState,
        failure: StepFailed | None,
        before: ResctrlState,
        records: Mapping[str, VmRecord],
        planned: Planned,
    ) -> tuple[ResctrlState, dict[str, Allocation], bool]:
        """What each VM has once its control group is made, or could not be.

        :param now: resctrl as it is.
        :param failure: the step that failed, if one did.
        :param before: resctrl before the plan was carried out.
        :returns: resctrl as it is then, the part of its allocation that each VM has, by UUID, and whether a failure
            concerns some VMs only.
        """
        plan, last = planned.plan, self._had_by(records)
        if failure is not None:
            last |= self._find_in_groups(before, records, planned)
        has = {
            uuid: judge.in_force(now, plan, last.get(uuid), its, is_cut_short=failure is not None)
            for uuid, its in plan.allocations.items()
        }
        if failure is None:
            return now, has, False
        is_rest_possible = self.groups.blame(plan, has, failure, planned.waiting)
        stays = {uuid: judge.still_in(now, plan, uuid, last.get(uuid), its) for uuid, its in has.items()}
        if stays != has and failure.step.group in created(plan) and now.group(failure.step.group) is not None:
            # No task is in it. With the masks that the kernel gave it, it has ways that are to be given back.
            self.groups.execute([RemoveGroup(failure.step.group)])
            now = resctrl_state.read(self.filesystem, now)
        why = of_error(failure.error)
        told = {uuid: judge.held_up(given, plan.allocations[uuid], why) for uuid, given in stays.items()}
        return now, told, is_rest_possible

    def _had_by(self, records: Mapping[str, VmRecord]) -> dict[str, Allocation]:
        """What was in force before for VMs that run still: what a VM had before it was started anew, it has no more."""
        known = self.memory.snapshot.vms
        anew = {uuid for uuid in records.keys() & known.keys() if records[uuid].arrival != known[uuid].arrival}
        return {uuid: given for uuid, given in self.memory.in_force.items() if uuid not in anew}

    def _find_in_groups(
        self, before: ResctrlState, records: Mapping[str, VmRecord], planned: Planned
    ) -> dict[str, Allocation]:
        """What resctrl shows that VMs had, of which no earlier pass told: this agent has only just been started.

        How many ways VMs have that are to leave their groups is remembered: the steps that succeeded may have taken
        them.

        :param before: resctrl before the plan was carried out.
        """
        asked = {one.uuid: one.caches for one in planned.requests}
        fresh = [records[uuid] for uuid in asked if uuid in records and uuid not in self.memory.snapshot.vms]
        if not fresh:
            return {}
        found, given = keep_current.find_in_groups(self.filesystem, before, fresh, asked), planned.plan.allocations
        own = [its for uuid, its in found.items() if owner_of(its.group) is Owner.VM and its.group != given[uuid].group]
        if own:
            had = {its.group: {cache: mask.count for cache, mask in its.masks.items()} for its in own}
            self.memory.granted = {**had, **(self.memory.granted or {})}
        return found

    def _prepare(
        self, now: ResctrlState, records: Mapping[str, VmRecord], planned: Planned
    ) -> tuple[ResctrlState, StepFailed | None]:
        """Make the control groups what the plan says, as far as VMs need them.

        :returns: resctrl as it is then, and the step that failed, if one did.
        """
        plan, fresh = planned.plan, created(planned.plan)
        if now.lacks_rmids(len(fresh)):
            self.monitoring.make_room(
                now, sorted(fresh), monitoring_plan.may_give_up(now, plan, records, self.memory.unseen)
            )
            now = resctrl_state.read(self.filesystem, now)
        self.memory.has_taken_ways = self.memory.has_taken_ways or bool(plan.prepare)
        failure = self.groups.execute(plan.prepare)
        if failure is not None:
            return resctrl_state.read(self.filesystem, now), failure
        self.memory.remember(plan, records, planned.waiting)
        return replace(now, layout=predict(now.layout, plan.prepare)), None

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
                self.backoff.succeed(uuid)

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
        self.placer.keep_only(records.keys())
        ours = {uuid: record for uuid, record in records.items() if not record.request.hands_off}
        controls = {uuid: in_force[uuid].group if uuid in in_force else "" for uuid in ours}
        left = {uuid for uuid in planned.parted & controls.keys() if controls[uuid]}
        with_threads = {uuid for uuid, record in records.items() if record.threads is not None}
        left_behind = monitoring_plan.left_behind(now, ours, controls)
        arranged = self.monitoring.arrange(now, controls, self.memory.unseen, with_threads | left, left_behind, share)
        # A VM without a promise gets only counters: its tasks are moved once its monitoring group is there.
        later = {uuid for uuid in arranged.later if not controls[uuid]}
        aims = {
            uuid: arranged.aim(uuid, controls[uuid], record.threads)
            for uuid, record in ours.items()
            if uuid not in left | later
        }
        vms = {uuid: record.observed for uuid, record in records.items()}
        look_at = look_at | self.placer.strays(vms, share)
        self.placer.place(now, aims, look_at, vms, arranged.fresh | created(planned.plan), share)
        self.memory.is_unfinished = self.placer.is_owing or bool(arranged.later)
        self.placer.note_removed(self.monitoring.remove(arranged.stale))
        self.memory.in_force, self.memory.aims = in_force, aims
        return self.with_places(records, aims, arranged.unmonitored)

    def with_places(
        self, records: Mapping[str, VmRecord], aims: Mapping[str, TaskGroups], unmonitored: Mapping[str, str]
    ) -> dict[str, VmRecord]:
        """The records with the places where the tasks were found, or are now.

        :param unmonitored: why VMs have no monitoring group, by UUID.
        """
        placed = self.placer.placed
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
                outside=None if record.request.is_trial_alone else self.placer.outside.get(uuid),
            )
            for uuid, record in records.items()
        }


def _may_fail(uuid: str, request: FlavorRequest) -> Iterator[Hashable]:
    """The keys of what can fail for a VM."""
    yield uuid
    if not request.hands_off:
        yield "monitoring", uuid
        yield "tasks", uuid
    if request.follows_vcpus:
        yield "vcpus", uuid


def _has_groups_of_ours(now: ResctrlState, plan: Plan) -> bool:
    """Whether a VM or a class has a control group once a plan was carried out.

    :param now: resctrl without the groups that the plan retires, or with them.
    """
    gone = {step.group for step in plan.retire}
    return any(group.owner in (Owner.VM, Owner.CLASS) and group.name not in gone for group in now.layout.groups)
