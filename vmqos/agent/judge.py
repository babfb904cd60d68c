# SPDX-License-Identifier: Apache-2.0
"""The fifth step of a pass: the state of each promise, from what resctrl has, what the flavor asks, and what failed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vmqos.agent.act.control_groups import created
from vmqos.agent.act.monitoring_groups import YET_TO_BE_MADE
from vmqos.agent.act.move_tasks import TaskPlacement
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.remember.promise_time import PromiseTime
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Group, Layout, Plan, PromiseState, caches
from vmqos.daemon.backoff import Backoff, Failure
from vmqos.group_names import DEFAULT_GROUP, Owner, class_request, owner_of
from vmqos.host.resctrl_state import ResctrlState
from vmqos.reason import Code, Reason, joined
from vmqos.resctrl.bitmask import CapacityBitmask

_MENDED = "the next pass corrects that"

NOT_MOVED = Reason(Code.TASKS_MISSING, "its tasks are not in place yet: this VM waits for its turn")


def judge_all(
    records: Mapping[str, VmRecord],
    allocations: Mapping[str, Allocation],
    before: Mapping[str, VmRecord],
    backoff: Backoff,
) -> dict[str, VmRecord]:
    """The records with the state of each promise.

    :param allocations: what is in force for the VMs for which the planner was asked, by UUID.
    :param before: the records of the last pass.
    :param backoff: the failures, by UUID, and by ``("tasks", uuid)``.
    """
    judged = {}
    for uuid, record in records.items():
        given = allocations.get(uuid)
        if given is None and record.wants_something:
            given = Allocation(PromiseState.PENDING)
        failure = backoff.get(uuid) or backoff.get(("tasks", uuid))
        fresh = judge(record.request, given, record.tasks, failure)
        last = before[uuid].allocation if uuid in before else None
        is_same = last is not None and last.state is fresh.state
        fresh = replace(fresh, since=last.since if last is not None and is_same else time.time())
        known = before[uuid].time if uuid in before else None
        moment = time.monotonic()
        spent = known.judged(fresh.state, moment) if known is not None else PromiseTime(fresh.state, moment)
        judged[uuid] = replace(record, allocation=fresh, time=spent, failure=failure)
    return judged


def as_counted(records: Mapping[str, VmRecord], now: ResctrlState) -> dict[str, VmRecord]:
    """The records without the monitoring groups that resctrl no longer has: another program has removed them; pure.

    The kernel counts tasks of such a group with those of the default group. The next pass makes the group anew.
    """
    there = {(control, name) for control, names in now.monitoring_groups.items() for name in names}
    counted = dict(records)
    for uuid, record in records.items():
        if record.tasks is None:
            continue
        groups = (record.tasks.target, record.tasks.rest)
        gone = {one for one in groups if one and one.monitoring and (one.control, one.monitoring) not in there}
        if gone:
            tasks = record.tasks.without({group.directory for group in gone})
            counted[uuid] = replace(record, tasks=tasks, unmonitored=record.unmonitored or YET_TO_BE_MADE)
    return counted


def in_force(
    now: ResctrlState, plan: Plan, last: Allocation | None, given: Allocation, *, is_cut_short: bool = False
) -> Allocation:
    """The allocation, if resctrl has all of it; otherwise the part of it that resctrl has; pure.

    :param last: what was in force for the VM before; ``None`` where it had nothing.
    :param given: what the plan gives it.
    :param is_cut_short: whether a step of the plan failed: others may have ways still that the plan gives this VM.
    """
    group, default = now.group(given.group), now.group(DEFAULT_GROUP)
    if not given.group or group is None or default is None:
        return given if not given.group else Allocation(PromiseState.PENDING, reason=given.reason)
    # A group that was just made has no limit until one is written, and no limit is never written.
    unlimited = no_limit(now)
    has = {cache: group.throttles.get(cache, unlimited) for cache in given.throttles}
    limits = {cache: value for cache, value in given.throttles.items() if has[cache] == value}
    further = _further_limits(given, group, unlimited)
    divided = all(group.splits.get(cache) == parts for cache, parts in given.splits.items())
    placed = all(group.masks.get(cache) == mask for cache, mask in given.masks.items())
    is_whole = placed and divided and limits == given.throttles and not further
    is_class, is_there = group.owner is Owner.CLASS, last is not None and last.group == given.group
    if is_whole and (is_class or is_there or not is_cut_short):
        return given
    held = {cache: group.masks[cache] for cache in given.masks if cache in group.masks}
    # The kernel gives a new group, and each group on a cache that came online, ways that other groups have too. Those
    # are no grant: not in the pass that makes the group, and not in a later one, whatever became of the mask, if the VM
    # was in another group until now.
    shared = default if is_class else None
    others = _ways_of_other_vms(now, plan, shared, given.group) if is_class or not is_there else ()
    is_free = not any(_overlap(held, masks) for masks in others)
    if is_whole and is_free:
        return given
    # On a cache that came online, each group has all ways until the plan was carried out.
    held = {cache: mask for cache, mask in held.items() if is_class or not _overlap({cache: mask}, default.masks)}
    if held and is_free and given.group not in created(plan):
        splits = {cache: group.splits[cache] for cache in held if cache in given.splits and cache in group.splits}
        return replace(given, state=PromiseState.DEGRADED, masks=held, throttles=limits | further, splits=splits)
    if not given.masks and is_there and given.group not in created(plan):
        # It has a limit alone. Where that lacks on some of its caches, it is no better off in the default group, unless
        # other VMs' ways are still in its group's masks.
        others = _ways_of_other_vms(now, plan, default, given.group)
        if not any(_overlap(group.masks, masks) for masks in others):
            state = PromiseState.DEGRADED if limits or further else PromiseState.PENDING
            return replace(given, state=state, throttles=limits | further)
    return Allocation(PromiseState.PENDING, reason=given.reason)


def still_in(now: ResctrlState, plan: Plan, uuid: str, last: Allocation | None, given: Allocation) -> Allocation:
    """What a VM has where a step of the plan failed: while its new group gives it nothing, it stays in its old one.

    The steps before may have taken that one's ways, which no other VM has then: the next pass gives them back (rule 4).

    :param uuid: the VM's.
    :param last: what was in force for the VM before; ``None`` where it had nothing.
    :param given: what is in force for it of this plan.
    """
    gives_nothing = "", plan.allocations[uuid].group, *created(plan)
    if last is None or last.group in gives_nothing or given.group or given.state is not PromiseState.PENDING:
        return given
    group = now.group(last.group)
    if group is None:
        return given
    masks = {cache: mask for cache, mask in last.masks.items() if group.masks.get(cache) == mask}
    splits = {cache: parts for cache, parts in last.splits.items() if group.splits.get(cache) == parts}
    limits = {cache: value for cache, value in last.throttles.items() if group.throttles.get(cache) == value}
    state = PromiseState.DEGRADED if masks or limits else PromiseState.PENDING
    return replace(last, state=state, masks=masks, splits=splits, throttles=limits, reason=given.reason)


def _ways_of_other_vms(
    now: ResctrlState, plan: Plan, shared: Group | None, name: str
) -> Iterator[Mapping[int, CapacityBitmask]]:
    """The ways by cache that other VMs' own groups have now.

    :param shared: a group whose ways are nobody's own, so that a mask with some of them does not count.
    :param name: of the group of which others are meant.
    """
    names = {given.group for given in plan.allocations.values()} - {name}
    for group in now.layout.groups:
        if group.owner is Owner.VM and group.name in names:
            yield {
                cache: mask
                for cache, mask in group.masks.items()
                if shared is None or not _overlap({cache: mask}, shared.masks)
            }


def _overlap(masks: Mapping[int, CapacityBitmask], others: Mapping[int, CapacityBitmask]) -> bool:
    return any(mask.overlaps(others[cache]) for cache, mask in masks.items() if cache in others)


def no_limit(now: ResctrlState) -> int | None:
    """The value of schemata that stands for no limit of memory bandwidth; ``None`` where the host can't limit it."""
    resource = now.capabilities.memory_bandwidth
    return resource.unit.unlimited if resource is not None else None


def held_up(given: Allocation, planned: Allocation, why: Reason) -> Allocation:
    """What a VM has where a step of the plan failed: if it has less than planned, it is told why; pure.

    The step may be another group's. No step after it was tried.

    :param given: what is in force for the VM.
    :param planned: what the plan gives it.
    :param why: what failed.
    """
    if given is planned or given.reason:
        return given
    return replace(given, reason=why)


def borne_out(given: Allocation, layout: Layout, unlimited: int | None) -> Allocation:
    """The part of an allocation that is left at the end of its pass: other programs may have changed groups; pure.

    The group must have what the plan gave it: masks, parts and limits, and no other limits. The ways of an exclusive VM
    must be in no other group's mask. A cache that went offline since takes no part.

    :param layout: resctrl as it was read back.
    :param unlimited: see :func:`no_limit`.
    """
    if given.state in (PromiseState.PENDING, PromiseState.NONE) or given.group == DEFAULT_GROUP:
        return given
    group = next((group for group in layout.groups if group.name == given.group), None)
    if group is None:
        reason = _changed(f"another program removed the control group {given.group}")
        return Allocation(PromiseState.PENDING, reason=reason)
    given = _of_online(given, layout)
    further = _further_limits(given, group, unlimited)
    if changes := [*_changed_masks(given, group), *_changed_limits(given, group, further)]:
        return replace(
            given,
            state=PromiseState.DEGRADED,
            masks={cache: group.masks[cache] for cache in given.masks if cache in group.masks},
            splits={cache: group.splits[cache] for cache in given.splits if cache in group.splits},
            throttles=further
            | {cache: group.throttles[cache] for cache in given.throttles if cache in group.throttles},
            reason=_changed(f"another program changed the control group {given.group}: {', '.join(changes)}"),
        )
    # Where the planner found no room that is the VM's alone, its own reason names the groups that share the ways.
    if given.reason.has(Code.OVERLAPPED) or owner_of(given.group) is not Owner.VM:
        return given
    intruders = sorted(
        group.name or "the default group"
        for group in layout.groups
        if group.name != given.group
        and any(cache in group.masks and mask.overlaps(group.masks[cache]) for cache, mask in given.masks.items())
    )
    if not intruders:
        return given
    reason = Reason(Code.OVERLAPPED, f"{', '.join(intruders)} got ways of this VM too; {_MENDED}")
    return replace(given, state=PromiseState.DEGRADED, reason=joined(given.reason, reason))


def _changed(what: str) -> Reason:
    return Reason(Code.CHANGED_OUTSIDE, f"{what}; {_MENDED}")


def _of_online(given: Allocation, layout: Layout) -> Allocation:
    """The allocation without the caches that went offline: the default group has a mask on each that is online."""
    default = next((group for group in layout.groups if group.name == DEFAULT_GROUP), None)
    if default is None or (
        given.masks.keys() <= default.masks.keys() and given.throttles.keys() <= default.throttles.keys()
    ):
        return given
    return replace(
        given,
        masks={cache: mask for cache, mask in given.masks.items() if cache in default.masks},
        splits={cache: parts for cache, parts in given.splits.items() if cache in default.masks},
        throttles={cache: limit for cache, limit in given.throttles.items() if cache in default.throttles},
    )


def _changed_masks(given: Allocation, group: Group) -> Iterator[str]:
    """A clause for each mask, or part of a mask, that is not what was given."""
    for cache, mask in sorted(given.masks.items()):
        name = f"L{caches.level(cache)} cache {caches.id_of(cache)}"
        if group.masks.get(cache) != mask:
            yield f"{name} has the mask {group.masks.get(cache, 'none')} instead of {mask}"
            continue
        parts, now = given.splits.get(cache), group.splits.get(cache)
        if parts is not None and parts != now:
            found = f"{now.code} for code and {now.data} for data" if now is not None else "one mask for code and data"
            yield f"{name} has {found} instead of {parts.code} and {parts.data}"


def _changed_limits(given: Allocation, group: Group, further: Mapping[int, int]) -> Iterator[str]:
    """A clause for each limit of memory bandwidth that is not what was given.

    :param further: those that were not given at all.
    """
    for cache, limit in sorted(given.throttles.items()):
        now = group.throttles.get(cache)
        if now != limit:
            yield f"MB {cache} is {'none' if now is None else now} instead of {limit}"
    for cache, limit in sorted(further.items()):
        yield f"MB {cache} is {limit} instead of no limit"


def _further_limits(given: Allocation, group: Group, unlimited: int | None) -> dict[int, int]:
    """The limits of memory bandwidth that a VM's group has and the VM was not given, by cache; pure.

    A class that is named after a limit may have it on caches where only others of its VMs can run.

    :param unlimited: see :func:`no_limit`.
    """
    if unlimited is None:
        return {}
    limits = {
        cache: limit for cache, limit in group.throttles.items() if limit < unlimited and cache not in given.throttles
    }
    wants = class_request(group.name) if limits else None
    is_named = wants is not None and (wants.bandwidth_percent, wants.bandwidth_mbps) != (None, None)
    return {} if is_named else limits


def judge(
    request: FlavorRequest, given: Allocation | None, tasks: TaskPlacement | None, failure: Failure | None
) -> Allocation:
    """The allocation of one VM with its final state, and with everything that is wrong as the reason; pure.

    What is tried on a VM was not promised to it: a trial is told, and changes no state.

    :param given: what is in force for it; ``None`` where the planner was not asked for it.
    :param tasks: where its tasks were found; ``None`` before the first look.
    :param failure: what failed for it and was not corrected since.
    """
    found = _judge_promise(request, given, tasks, failure)
    if not request.trial:
        return found
    state = PromiseState.NONE if request.is_trial_alone else found.state
    return replace(found, state=state, reason=joined(found.reason, request.trial))


def _judge_promise(
    request: FlavorRequest, given: Allocation | None, tasks: TaskPlacement | None, failure: Failure | None
) -> Allocation:
    trouble = _trouble(request, tasks, failure)
    if given is None:
        if request.unknown:
            return Allocation(PromiseState.PENDING, reason=trouble)
        return Allocation(PromiseState.DEGRADED if trouble else PromiseState.NONE, reason=trouble or request.remark)
    elsewhere = given.group != DEFAULT_GROUP and (tasks is None or tasks.target.control != given.group)
    if elsewhere and failure is None and request.wants is not None:
        trouble = joined(trouble, NOT_MOVED)
    if not trouble:
        return given
    state = PromiseState.DEGRADED if given.state is PromiseState.KEPT else given.state
    return replace(given, state=state, reason=joined(given.reason, trouble))


def _trouble(request: FlavorRequest, tasks: TaskPlacement | None, failure: Failure | None) -> Reason:
    parts = [request.unknown, request.problem]
    if failure is not None:
        parts.append(failure.reason)
    if tasks is not None and request.wants is not None:
        if tasks.foreign:
            text = "tasks are in a control group that another program made, and are left there"
            parts.append(Reason(Code.FOREIGN_TASKS, f"{len(tasks.foreign)} of {len(tasks.tasks)} {text}"))
        elif tasks.in_place != tasks.tasks and failure is None:
            text = f"{len(tasks.tasks - tasks.in_place)} of {len(tasks.tasks)} tasks are not in place yet"
            parts.append(Reason(Code.TASKS_MISSING, text))
    return joined(*parts)
