# SPDX-License-Identifier: Apache-2.0
"""What is not as it should be on a quiet host whose agent is a process: its API's words are held against what is so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.campaign.trouble.seen import Seen
from tests.campaign.trouble.verdicts import LASTING, Kind, Violation
from tests.campaign.trouble.vm import Vm
from tests.campaign.trouble.writes import PREFIX


def unsettled(rows: Iterable[Any], vms: Iterable[Vm], groups: Mapping[str, Seen]) -> Iterator[Violation]:
    """Everything that is not settled.

    :param rows: what the API tells of the VMs.
    :param vms: the VMs as they are. Their flavors ask for L3 ways for all tasks, or for nothing.
    :param groups: all control groups as they are.
    """
    told, everyone, needed = {row["uuid"]: row for row in rows}, list(vms), set[str]()
    for vm in everyone:
        row = told.pop(vm.uuid, None)
        if row is None or row["pid"] != vm.pid:
            yield Violation(Kind.UNSERVED, f"{vm.group} is not told of")
            continue
        needed.add(row["group"])
        yield from _unserved(vm, row, groups)
        yield from _untrue(vm, row, groups)
    for uuid in told:
        yield Violation(Kind.WORD, f"{uuid} is told of, and has ended")
    for name, seen in groups.items():
        if name.startswith(PREFIX) and name not in needed:
            yield Violation(Kind.LEAK, f"the group {name} is left")
        for child in seen.monitoring:
            if child.startswith(PREFIX) and child not in {vm.group for vm in everyone}:
                yield Violation(Kind.LEAK, f"the monitoring group {child} is left in {name or 'the default group'}")


def _unserved(vm: Vm, row: Any, groups: Mapping[str, Seen]) -> Iterator[Violation]:
    """Why a VM has not what it could have."""
    asked, state, name = int(vm.specs.get("hw:cache_ways", "0")), row["state"], row["group"]
    if (row["ways_requested"] or 0) != asked:
        yield Violation(Kind.UNSERVED, f"{vm.group} asks for {asked} ways, and {row['ways_requested']} are told")
    elif state == "none" and asked:
        yield Violation(Kind.UNSERVED, f"{vm.group} asks for {asked} ways and is told to ask for nothing")
    elif state not in ("kept", "none") and row["reason_code"] not in LASTING:
        yield Violation(Kind.UNSERVED, f"{vm.group} is {state}: {row['reason']}")
    elif state == "kept" and {int(mask, 16).bit_count() for mask in row["masks"].values()} != {asked}:
        yield Violation(Kind.UNSERVED, f"{vm.group} asks for {asked} ways and is told to have {row['masks']}")
    tasks = vm.tasks()
    elsewhere = {other for other, seen in groups.items() if other != name and seen.tasks & tasks}
    if elsewhere or (name in groups and name and tasks - groups[name].tasks):
        yield Violation(Kind.UNSERVED, f"not all tasks of {vm.group} are in {name or 'the default group'}: {elsewhere}")


def _untrue(vm: Vm, row: Any, groups: Mapping[str, Seen]) -> Iterator[Violation]:
    """What is told of a VM and is not so."""
    name = row["group"]
    if row["state"] in ("pending", "degraded") and not (row["reason"] and row["reason_code"]):
        yield Violation(Kind.WORD, f"{vm.group} is {row['state']} without a reason")
    own = groups.get(name)
    if own is None:
        yield Violation(Kind.WORD, f"{vm.group} is told to be in {name}, which is not there")
        return
    for cache, text in row["masks"].items():
        if own.masks.get((3, int(cache))) != int(text, 16):
            yield Violation(Kind.WORD, f"{vm.group} is told to have {row['masks']} and has {own.masks}")
        if not vm.is_exclusive or row["state"] != "kept":
            continue
        for other, theirs in groups.items():
            if other != name and theirs.masks.get((3, int(cache)), 0) & int(text, 16):
                shared = f"{other or 'the default group'} has {theirs.masks}"
                yield Violation(Kind.WORD, f"{vm.group} is told to be kept with {row['masks']}, and {shared}")
    counted = row["monitoring_group"]
    if counted is None:
        if not row["unmonitored_reason"] and name != vm.group:
            yield Violation(Kind.WORD, f"{vm.group} has no monitoring group, and no reason is told")
    else:
        control, _, child = counted.removeprefix("mon_groups/").rpartition("/mon_groups/")
        if control not in groups or child not in groups[control].monitoring:
            yield Violation(Kind.WORD, f"{vm.group} is told to be counted by {counted}, which is not there")
