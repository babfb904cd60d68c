# SPDX-License-Identifier: Apache-2.0
"""Deciding which VM gets a monitoring group, and in which control group: RMIDs are few, and counters worth keeping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from vmqos.agent import trial
from vmqos.agent.act import control_groups
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Plan
from vmqos.group_names import Owner, owner_of, vm_group
from vmqos.host.resctrl_state import ResctrlState

OUT_OF_RMIDS = "no RMID is left: the machine has {total}, and {reserved} are kept for VMs with a promise"
GIVEN_UP = "its monitoring group was given up for the promise of {whom}: {rest}"
CANNOT_MONITOR = "this machine's resctrl has no monitoring (no info/L3_MON)"


@dataclass(frozen=True, slots=True)
class Move:
    """Rename a monitoring group into another control group: its tasks, RMID and counters go along."""

    name: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Create:
    """Make a monitoring group."""

    name: str
    control: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a monitoring group; from then on its tasks are counted with those of its control group."""

    name: str
    control: str


Step = Move | Create | Remove


@dataclass(frozen=True, slots=True)
class MonitoringPlan:
    """What to do about monitoring groups.

    :ivar steps: moves and creations, to be done before the VMs' tasks are placed.
    :ivar stale: removals, to be done after.
    :ivar without: why a VM has no monitoring group, by UUID.
    """

    steps: tuple[Move | Create, ...]
    stale: tuple[Remove, ...]
    without: Mapping[str, str]


def plan(resctrl: ResctrlState, wanted: Sequence[tuple[str, str]]) -> MonitoringPlan:
    """Arrange the monitoring of all VMs that have no control group of their own, or that have tasks outside of it.

    Every control group takes an RMID too. So the plan keeps one RMID free for each control group that can still be
    made: a promise goes before a graph.

    :param wanted: UUID and control group of each VM, in order of arrival; a VM whose tasks are in two control groups is
        there twice.
    """
    monitoring = resctrl.capabilities.monitoring
    if monitoring is None:
        return MonitoringPlan((), (), {uuid: CANNOT_MONITOR for uuid, _ in wanted})
    ours = {
        (name, control)
        for control, names in resctrl.monitoring_groups.items()
        for name in names
        if owner_of(name) is Owner.VM and owner_of(control) is not Owner.FOREIGN
    }
    needed = {(vm_group(uuid), control) for uuid, control in wanted}
    spare = dict(sorted(ours - needed))
    reserved = _reserved(resctrl)
    free = spare_rmids(resctrl)
    steps: list[Move | Create] = []
    without = {}
    for uuid, control in wanted:
        name = vm_group(uuid)
        if (name, control) in ours:
            ours.remove((name, control))
        elif name in spare:
            source = spare.pop(name)
            steps.append(Move(name, source, control))
            ours.remove((name, source))
        elif free > 0:
            free -= 1
            steps.append(Create(name, control))
        else:
            without[uuid] = OUT_OF_RMIDS.format(total=monitoring.num_rmids, reserved=reserved)
    stale = tuple(Remove(name, control) for name, control in sorted(ours))
    return MonitoringPlan(tuple(steps), stale, without)


def spare_rmids(resctrl: ResctrlState) -> int:
    """How many RMIDs are left for monitoring groups; 0 or less where none is, or there is no monitoring."""
    monitoring = resctrl.capabilities.monitoring
    return 0 if monitoring is None else monitoring.num_rmids - resctrl.rmids_in_use - _reserved(resctrl)


def _reserved(resctrl: ResctrlState) -> int:
    """How many RMIDs are kept free for control groups that can still be made."""
    return max(0, resctrl.capabilities.num_closids - resctrl.closids_in_use)


def give_up(resctrl: ResctrlState, created: Sequence[str], candidates: Sequence[str]) -> tuple[tuple[Remove, str], ...]:
    """The monitoring groups to give up for control groups that are about to be made: a promise goes before a graph.

    That is needed where other programs have taken the RMIDs that :func:`plan` keeps free. While enough RMIDs are free,
    no group is given up. :func:`plan` does not make such a group again: it finds fewer RMIDs than it keeps free.

    :param created: the names of the control groups.
    :param candidates: UUIDs of the VMs whose monitoring groups may be given up, the first one first.
    :returns: the removals, each with the control group that needs its RMID.
    """
    if resctrl.capabilities.monitoring is None:
        return ()
    free = max(0, resctrl.capabilities.monitoring.num_rmids - resctrl.rmids_in_use)
    where = {
        name: control
        for control, names in resctrl.monitoring_groups.items()
        for name in names
        if owner_of(name) is Owner.VM and owner_of(control) is not Owner.FOREIGN
    }
    steps = (Remove(name, where[name]) for name in map(vm_group, candidates) if name in where)
    return tuple((step, group) for step, group in zip(steps, created[free:], strict=False))


def may_give_up(now: ResctrlState, plan: Plan, records: Mapping[str, VmRecord], unseen: Set[str]) -> Sequence[str]:
    """The VMs whose monitoring groups may be given up for a promise, in the order in which they are given up; pure.

    VMs that are gone come first. VMs that get a control group follow, because that group counts them from then on. Then
    come VMs without a promise, and then the others. Within each of these, the VM that came last is first.
    """
    fresh = control_groups.created(plan)

    def rank(uuid: str) -> int:
        given = plan.allocations.get(uuid)
        if given is not None and given.group in fresh and owner_of(given.group) is Owner.VM:
            return 0
        return 1 if given is None and records[uuid].request.wants is None else 2

    gone = sorted(now.monitored - records.keys() - unseen)
    return [*gone, *sorted(reversed(list(records)), key=rank)]


def left_behind(now: ResctrlState, records: Mapping[str, VmRecord], controls: Mapping[str, str]) -> dict[str, str]:
    """The control groups that VMs have left because ways of their own are tried on them, by UUID; pure.

    A VM has none where its monitoring group is there no more.

    :param controls: the control group of each VM by UUID.
    """
    found = {}
    for uuid, record in records.items():
        if controls[uuid] == vm_group(uuid) and trial.leaves_its_place(record.request):
            places = [control for control, names in now.monitoring_groups.items() if controls[uuid] in names]
            if places:
                found[uuid] = places[0]
    return found
