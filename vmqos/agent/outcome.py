# SPDX-License-Identifier: Apache-2.0
"""How one VM's promise stands, all things considered: the plan, the flavor, what failed, where its tasks are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vmqos.agent.act.move_tasks import TaskPlacement
from vmqos.agent.life.backoff import Backoff, Failure
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.allocation import Allocation, Group, Layout, PromiseState, Split, caches
from vmqos.group_names import DEFAULT_GROUP, Owner, owner_of
from vmqos.reason import NO_REASON, Code, Reason, joined
from vmqos.resctrl.bitmask import CapacityBitmask

_MENDED = "the next pass corrects that"

NOT_MOVED = Reason(Code.TASKS_MISSING, "its tasks are not in place yet: this VM waits for its turn")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the agent has to say of one VM.

    :ivar state: how the promise stands.
    :ivar reason: why it is not kept; a remark where it is.
    :ivar group: the control group of its tasks.
    :ivar masks: the ways its promise gives it, by cache id.
    :ivar since: when this state began, in seconds since 1970.
    :ivar throttles: the limits of memory bandwidth that its promise gives it, by cache id, in the unit of schemata.
    :ivar splits: its ways for code and for data, by cache id, where it asks for them apart.
    """

    state: PromiseState
    reason: Reason = NO_REASON
    group: str = DEFAULT_GROUP
    masks: Mapping[int, CapacityBitmask] = field(default_factory=dict)
    since: float = 0.0
    throttles: Mapping[int, int] = field(default_factory=dict)
    splits: Mapping[int, Split] = field(default_factory=dict)


def borne_out(verdict: Allocation, layout: Layout) -> Allocation:
    """What a verdict is worth at the end of its pass: others may have changed groups since the plan was made; pure.

    The group must have what the plan gave it: masks, parts and limits. The ways of an exclusive VM must be in no other
    group's mask. A cache that went offline since is nobody's fault, and the verdict is about the others then.

    :param layout: resctrl as it was read back.
    """
    if verdict.state in (PromiseState.PENDING, PromiseState.NONE) or verdict.group == DEFAULT_GROUP:
        return verdict
    group = next((group for group in layout.groups if group.name == verdict.group), None)
    if group is None:
        reason = _changed(f"another program removed the control group {verdict.group}")
        return Allocation(PromiseState.PENDING, reason=reason)
    verdict = _of_online(verdict, layout)
    if changes := [*_changed_masks(verdict, group), *_changed_limits(verdict, group)]:
        return replace(
            verdict,
            state=PromiseState.DEGRADED,
            masks={cache: group.masks[cache] for cache in verdict.masks if cache in group.masks},
            splits={cache: group.splits[cache] for cache in verdict.splits if cache in group.splits},
            throttles={cache: group.throttles[cache] for cache in verdict.throttles if cache in group.throttles},
            reason=_changed(f"another program changed the control group {verdict.group}: {', '.join(changes)}"),
        )
    # Of a verdict that is not kept, the plan itself knows who shares the ways.
    if verdict.state is not PromiseState.KEPT or owner_of(verdict.group) is not Owner.VM:
        return verdict
    intruders = sorted(
        group.name or "the default group"
        for group in layout.groups
        if group.name != verdict.group
        and any(cache in group.masks and mask.overlaps(group.masks[cache]) for cache, mask in verdict.masks.items())
    )
    if not intruders:
        return verdict
    reason = Reason(Code.OVERLAPPED, f"another program gave ways of this VM to {', '.join(intruders)} too; {_MENDED}")
    return replace(verdict, state=PromiseState.DEGRADED, reason=reason)


def _changed(what: str) -> Reason:
    return Reason(Code.CHANGED_OUTSIDE, f"{what}; {_MENDED}")


def _of_online(verdict: Allocation, layout: Layout) -> Allocation:
    """The verdict without the caches that went offline: the default group has a mask on every cache that is online."""
    default = next((group for group in layout.groups if group.name == DEFAULT_GROUP), None)
    if default is None or (
        verdict.masks.keys() <= default.masks.keys() and verdict.throttles.keys() <= default.throttles.keys()
    ):
        return verdict
    return replace(
        verdict,
        masks={cache: mask for cache, mask in verdict.masks.items() if cache in default.masks},
        splits={cache: parts for cache, parts in verdict.splits.items() if cache in default.masks},
        throttles={cache: limit for cache, limit in verdict.throttles.items() if cache in default.throttles},
    )


def _changed_masks(verdict: Allocation, group: Group) -> Iterator[str]:
    """The masks, and the parts of masks, that are not what the verdict says."""
    for cache, mask in sorted(verdict.masks.items()):
        name = f"L{caches.level(cache)} cache {caches.id_of(cache)}"
        if group.masks.get(cache) != mask:
            yield f"{name} has the mask {group.masks.get(cache, 'none')} instead of {mask}"
            continue
        parts, now = verdict.splits.get(cache), group.splits.get(cache)
        if parts is not None and parts != now:
            found = f"{now.code} for code and {now.data} for data" if now is not None else "one mask for code and data"
            yield f"{name} has {found} instead of {parts.code} and {parts.data}"


def _changed_limits(verdict: Allocation, group: Group) -> Iterator[str]:
    """The limits of memory bandwidth that are not what the verdict says."""
    for cache, limit in sorted(verdict.throttles.items()):
        now = group.throttles.get(cache)
        if now != limit:
            yield f"MB {cache} is {'none' if now is None else now} instead of {limit}"


def failure_of(backoff: Backoff, uuid: str) -> Failure | None:
    """What failed last for a VM: with its group, or else with its tasks."""
    return backoff.get(uuid) or backoff.get(("tasks", uuid))


def judge(
    wish: FlavorRequest, verdict: Allocation | None, placed: TaskPlacement | None, failure: Failure | None
) -> Outcome:
    """Put together what is known of one VM; pure.

    :param verdict: what is in force for it; ``None`` where the planner was not asked.
    :param placed: where its tasks were found; ``None`` where nobody looked.
    :param failure: what failed for it and is not mended.
    """
    if verdict is None:
        trouble = _trouble(wish, placed, failure)
        if wish.unknown:
            return Outcome(PromiseState.PENDING, trouble)
        return Outcome(PromiseState.DEGRADED if trouble else PromiseState.NONE, trouble or wish.remark)
    outcome = Outcome(
        verdict.state,
        verdict.reason,
        verdict.group,
        verdict.masks,
        throttles=verdict.throttles,
        splits=verdict.splits,
    )
    trouble = _trouble(wish, placed, failure)
    elsewhere = verdict.group != DEFAULT_GROUP and (placed is None or placed.target.control != verdict.group)
    if elsewhere and failure is None and wish.request is not None:
        trouble = joined(trouble, NOT_MOVED)
    if not trouble:
        return outcome
    state = PromiseState.DEGRADED if outcome.state is PromiseState.KEPT else outcome.state
    return replace(outcome, state=state, reason=joined(outcome.reason, trouble))


def _trouble(wish: FlavorRequest, placed: TaskPlacement | None, failure: Failure | None) -> Reason:
    parts = [wish.unknown, wish.problem]
    if failure is not None:
        parts.append(failure.reason)
    if placed is not None and wish.request is not None:
        if placed.foreign:
            text = "tasks are in a control group that somebody else made, and are left there"
            parts.append(Reason(Code.FOREIGN_TASKS, f"{len(placed.foreign)} of {len(placed.tasks)} {text}"))
        elif placed.in_place != placed.tasks and failure is None:
            text = f"{len(placed.tasks - placed.in_place)} of {len(placed.tasks)} tasks are not in place yet"
            parts.append(Reason(Code.TASKS_MISSING, text))
    return joined(*parts)
