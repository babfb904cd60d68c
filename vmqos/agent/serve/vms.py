# SPDX-License-Identifier: Apache-2.0
"""The agent's knowledge as the JSON values that its API answers with; pure but for the tasks of one VM."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, cast

from vmqos import allocation
from vmqos.agent.act import control_groups
from vmqos.agent.snapshot import Snapshot
from vmqos.agent.trial import untried
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Plan, PromiseState, WriteMasks
from vmqos.allocation.caches import of_level as caches_of
from vmqos.extra_specs import CacheRequest, cpu_spec
from vmqos.host.resctrl_state import ResctrlState
from vmqos.hypervisor import exceptions as hypervisor_exceptions
from vmqos.hypervisor import processes, vm_tasks
from vmqos.local_api import contract
from vmqos.resctrl import exceptions as resctrl_exceptions
from vmqos.resctrl import tasks
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

_Told = tuple[VmRecord, dict[str, Any]]
"""A VM, and what is told of it as long as no pass changes it."""


class Vms:
    """Tells all VMs; what stays the same from one pass to the next is made once. May be called from any thread."""

    def __init__(self) -> None:
        self._known: tuple[tuple[object, ...], Mapping[str, _Told]] = (), {}

    def told(self, snapshot: Snapshot) -> list[contract.Vm]:
        """Every VM, those that came first in front."""
        basis, (before, known) = (snapshot.vms, snapshot.resctrl, snapshot.topology), self._known
        if not _is_same(basis, before):
            if not _is_same(basis[1:], before[1:]):
                known = {}
            in_order = sorted(snapshot.vms.values(), key=lambda record: record.arrival)
            known = {record.uuid: _told(snapshot, record, known.get(record.uuid)) for record in in_order}
            self._known = basis, known
        now = time.monotonic()
        return [cast(contract.Vm, {**same, **_times(record, now)}) for record, same in known.values()]


def _is_same(now: tuple[object, ...], before: tuple[object, ...]) -> bool:
    return len(now) == len(before) and all(one is other for one, other in zip(now, before, strict=True))


def vm(snapshot: Snapshot, record: VmRecord) -> contract.Vm:
    """One VM."""
    return cast(contract.Vm, {**_same(snapshot, record), **_times(record, time.monotonic())})


def _told(snapshot: Snapshot, record: VmRecord, known: _Told | None) -> _Told:
    return known if known is not None and known[0] is record else (record, _same(snapshot, record))


def _times(record: VmRecord, now: float) -> dict[str, float | None]:
    """What is another thing at each moment."""
    spent, failure = record.time, record.failure
    return {
        "promised_seconds": spent.promised_until(now) if spent else None,
        "kept_seconds": spent.kept_until(now) if spent else None,
        "retry_in": max(0.0, failure.due - now) if failure else None,
    }


def _same(snapshot: Snapshot, record: VmRecord) -> dict[str, Any]:
    """What stays the same as long as no pass changes the VM, resctrl or the caches."""
    observed, given, tasks = record.observed.vm, record.allocation, record.tasks
    asked = record.request.asked or CacheRequest()
    metadata, failure, vcpus, spent = observed.metadata, record.failure, record.vcpus, record.time
    return {
        "uuid": record.uuid,
        "name": observed.name,
        "instance_name": metadata.instance_name if metadata else "",
        "flavor": metadata.flavor if metadata else "",
        "project": metadata.project if metadata else "",
        "state": given.state.value,
        "reason": given.reason.text,
        "reason_code": given.reason.label,
        "policy": asked.policy.value if asked.l3_ways or asked.l2_ways else None,
        "ways_requested": asked.l3_ways or None,
        "code_ways_requested": asked.code_ways,
        "data_ways_requested": asked.data_ways,
        "vcpus_requested": cpu_spec.show(asked.vcpus) if asked.vcpus is not None else None,
        "vcpus": cpu_spec.show(vcpus.present) if vcpus else None,
        "l2_ways_requested": asked.l2_ways,
        "bandwidth_requested": asked.bandwidth_percent or asked.bandwidth_mbps,
        "bandwidth_requested_unit": _unit_asked(asked),
        **_given(snapshot.resctrl or snapshot.last_read, given),
        "group": given.group,
        "monitoring_group": tasks.target.directory if tasks and tasks.target.monitoring else None,
        "rest_monitoring_group": tasks.rest.directory if tasks and tasks.rest and tasks.rest.monitoring else None,
        "unmonitored_reason": record.unmonitored,
        "tasks": len(tasks.tasks) if tasks else 0,
        "tasks_in_place": len(tasks.in_place) if tasks else 0,
        "pid": observed.process.pid,
        "caches": sorted(snapshot.topology.caches_of(record.cpus)),
        "outside_at_start": _seconds(record.outside.at_start if record.outside else None),
        "outside_later": _seconds(record.outside.later if record.outside else None),
        "since": given.since,
        "state_changes": spent.changes if spent else None,
        "last_error": failure.reason.text if failure else None,
    }


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def task_list(snapshot: Snapshot, filesystem: Filesystem, uuid: str, patience: float) -> list[contract.Task]:
    """Where each task of a VM is now, read from resctrl.

    :param patience: seconds to wait for resctrl's lock.
    :raises KeyError: if there is no VM of that UUID.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
    """
    record = snapshot.vms[uuid]
    placed = record.tasks
    try:
        tids = vm_tasks.all_tasks(record.observed.vm) | (placed.tasks if placed else set())
    except hypervisor_exceptions.HypervisorError:
        tids = set()
    where: dict[int, str] = {}
    with filesystem.lock(exclusive=False, timeout=patience):
        for group in snapshot.resctrl.layout.groups if snapshot.resctrl else ():
            if len(where) == len(tids):
                break
            # A pseudo-locked group has no tasks to read, and a group may be removed at any moment.
            with contextlib.suppress(resctrl_exceptions.Unreadable, resctrl_exceptions.Vanished):
                where.update(dict.fromkeys(tids & tasks.read_tasks(filesystem, group.name), group.name))
    rows: list[contract.Task] = []
    for tid in sorted(tids):
        try:
            comm = processes.identify(tid).comm
        except hypervisor_exceptions.HypervisorError:
            continue
        group_name = where.get(tid)
        in_place = placed is not None and group_name == placed.control_of(tid)
        pid = record.observed.vm.process.pid
        rows.append({"tid": tid, "pid": pid, "comm": comm, "group": group_name, "in_place": in_place})
    return rows


def counts(snapshot: Snapshot) -> dict[str, int]:
    """How many VMs are in each state."""
    result = {state.value: 0 for state in PromiseState}
    for record in snapshot.vms.values():
        result[record.allocation.state.value] += 1
    return result


def what_if(snapshot: Snapshot, wants: CacheRequest) -> contract.Plan:
    """What one more VM that wants this would get, and what would be done for it.

    :raises LookupError: while resctrl can't be read.
    """
    if snapshot.resctrl is None:
        raise LookupError("resctrl can't be read now")
    now = snapshot.resctrl
    every_cache = frozenset(now.capabilities.l3_caches) or frozenset({0})
    given, plan = allocation.whatif(
        now.capabilities, now.layout, untried(snapshot), snapshot.policy, wants, every_cache
    )
    return {
        "verdict": {
            "state": given.state.value,
            "reason": given.reason.text,
            "reason_code": given.reason.label,
            "group": given.group,
            **_given(now, given),
        },
        "steps": [control_groups.describe(step) for step in (*plan.prepare, *plan.retire)],
        "moves": sorted(_moved(snapshot, plan)),
    }


def _given(resctrl: ResctrlState | None, given: Allocation) -> contract.Given:
    """The ways and the memory bandwidth of an allocation."""
    resource, of_l3 = resctrl.capabilities.memory_bandwidth if resctrl else None, caches_of(3, given.splits)
    limits = resource.unit.limits(given.throttles) if resource is not None else {}
    return {
        "masks": _masks(caches_of(3, given.masks)),
        "code_masks": _masks({cache: parts.code for cache, parts in of_l3.items()}),
        "data_masks": _masks({cache: parts.data for cache, parts in of_l3.items()}),
        "l2_masks": _masks(caches_of(2, given.masks)),
        "bandwidth": {str(cache): limit for cache, limit in sorted(limits.items())},
        # It is told in per cent or in MB/s, whatever the unit of schemata is.
        "bandwidth_unit": resource.unit.told_in if resource is not None else None,
    }


def _moved(snapshot: Snapshot, plan: Plan) -> set[str]:
    """UUIDs of the VMs whose promised ways the plan would change, by their own group's masks or their class's.

    On caches where a VM can't run its group follows the default group; that is no change for the VM.
    """
    changed = {(step.group, cache) for step in plan.prepare if isinstance(step, WriteMasks) for cache in step.masks}
    return {
        uuid
        for uuid, record in snapshot.vms.items()
        if any((record.allocation.group, cache) in changed for cache in record.allocation.masks)
    }


def _masks(masks: Mapping[int, CapacityBitmask]) -> dict[str, str]:
    return {str(cache): str(mask) for cache, mask in sorted(masks.items())}


def _unit_asked(asked: CacheRequest) -> str | None:
    """What the limit of memory bandwidth is asked for in."""
    if asked.bandwidth_percent is not None:
        return "%"
    return None if asked.bandwidth_mbps is None else "MB/s"
