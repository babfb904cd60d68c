# SPDX-License-Identifier: Apache-2.0
"""Why an instance has no samples: found anew each cycle, told once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from vmqos.telemetry import EVENTS, Missing, Snapshot

_NO_PROCESS = frozenset(
    {
        "building",
        "build",
        "deleted",
        "error",
        "shelved",
        "shelved_offloaded",
        "shutoff",
        "soft_deleted",
        "stopped",
        "suspended",
    }
)
"""Statuses of an instance that does not run, as Ceilometer's discovery by libvirt and as Nova's API call them."""

_TEXT = {
    Missing.UNAVAILABLE: "the hardware has no valid value now",
    Missing.ERROR: "the hardware or the kernel failed to read it",
    Missing.UNASSIGNED: "no hardware counter is assigned to its group (see mbm_assign_mode in resctrl's info/L3_MON)",
    Missing.NO_COUNTER: "this machine does not count it",
    Missing.UNREADABLE: "ceilometer-polling may not read it (see the permissions of its group in resctrl)",
    Missing.VANISHED: "its group or a cache went away while it was being read",
    Missing.NOT_MONITORED: "it has no group in resctrl: no RMID is left, or vmqos-agent does not run "
    "('vmqos vm list' and 'vmqos doctor' tell which)",
}
NOT_RUNNING = "it does not run"

Reasons = Mapping[tuple[str, str], str]
"""A text by UUID and event. An empty UUID is the host, an empty event all of them."""


class Instance(Protocol):
    """What of a discovered instance is asked for."""

    id: str
    status: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line for the log."""

    level: int
    text: str


def is_at_rest(instance: Instance) -> bool:
    """Whether an instance does not run. Its group may be there still: it is not removed while the agent is stopped."""
    return instance.status.lower() in _NO_PROCESS


def find(snapshot: Snapshot, instances: Iterable[Instance]) -> dict[tuple[str, str], str]:
    """All reasons of this cycle.

    An event that the machine does not count is the host's reason, and no instance's.
    """
    absent = {event for event in EVENTS if event not in snapshot.host.events}
    found = {("", event): _TEXT[Missing.NO_COUNTER] for event in EVENTS if event in absent}
    for instance in instances:
        vm = snapshot.vms.get(instance.id)
        if is_at_rest(instance):
            found[instance.id, ""] = NOT_RUNNING
            continue
        if vm is None:
            if snapshot.host.events:
                found[instance.id, ""] = _TEXT[Missing.NOT_MONITORED]
            continue
        for event in EVENTS:
            missing = vm.totals[event].missing
            if missing is not None and event not in absent:
                found[instance.id, event] = _TEXT.get(missing, missing)
    return found


def tell(before: Reasons, now: Reasons, instances: Iterable[Instance]) -> list[Line]:
    """What is new since the last cycle: reasons that were not there or were others, and reasons that are over."""
    lines = [_begun(*key, text) for key, text in now.items() if before.get(key) != text]
    running = {instance.id for instance in instances if not is_at_rest(instance)}
    over = [key for key in before if key[0] in running and not _holds(*key, now)]
    return lines + [Line(logging.INFO, f"instance {uuid} has samples{_of(event)} again") for uuid, event in over]


def _holds(uuid: str, event: str, now: Reasons) -> bool:
    """Whether there is a reason still: that one, or a wider one, of the whole instance or of the host."""
    return not now.keys().isdisjoint({(uuid, event), (uuid, ""), ("", event)})


def _begun(uuid: str, event: str, text: str) -> Line:
    level = logging.INFO if text == NOT_RUNNING else logging.WARNING
    who = f"instance {uuid} has no samples" if uuid else "no instance has samples"
    return Line(level, f"{who}{_of(event)}: {text}")


def _of(event: str) -> str:
    return f" that need {event}" if event else " of caches and memory bandwidth"
