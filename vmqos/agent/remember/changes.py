# SPDX-License-Identifier: Apache-2.0
"""What is different at the end of a pass from the end of the pass before; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

from vmqos.agent.vm_record import VmRecord

LONGEST_TEXT = 500
"""Characters of a text in an event: events are remembered by the thousand."""

TRIAL_OVER = "the trial is over: it has what its flavor asks for again"
"""The reason of the event at the end of a trial, where the VM has no other one."""


class Change(TypedDict):
    """An event without its number and time: see :class:`vmqos.local_api.contract.Event`."""

    kind: Literal["promise", "ended", "host", "neighbour"]
    uuid: str
    name: str
    project: str
    flavor: str
    state: str
    before: str
    reason: str
    reason_code: str
    culprit: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What events are made of.

    :ivar vms: the VMs, by UUID.
    :ivar troubles: what is wrong with the host, by what it concerns; empty texts where nothing is.
    """

    vms: Mapping[str, VmRecord] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)


def between(before: Seen, after: Seen) -> Iterator[Change]:
    """The changes, those of the host first.

    A promise has changed with its state, the code of its reason, or its group. The text of a reason may change with
    every pass, for example with the number of tasks in it, and is no change by itself.
    """
    for what, text in after.troubles.items():
        # A host that fares well from the start is no news.
        if bool(text) != bool(before.troubles.get(what)):
            yield _host(what, text)
    for uuid, record in after.vms.items():
        last = before.vms.get(uuid)
        if last is None or _standing(last) != _standing(record):
            yield _promise(record, last)
    for uuid, record in before.vms.items():
        if uuid not in after.vms:
            yield {**_promise(record, record), "kind": "ended", "state": "", "reason": "", "reason_code": ""}


def _standing(record: VmRecord) -> tuple[str, str, str]:
    given = record.allocation
    return given.state.value, given.reason.label, given.group


def where(group: str) -> str:
    """A control group in words."""
    return f"the group {group}" if group else "the default group"


def _without_reason(record: VmRecord, last: VmRecord | None) -> str:
    """What there is to say of a change that the agent has no reason for."""
    if last is None:
        return ""
    if last.request.trial and not record.request.trial:
        return TRIAL_OVER
    given, before = record.allocation, last.allocation
    is_moved = given.state is before.state and given.group != before.group
    return f"it is in {where(given.group)} now" if is_moved else ""


def _promise(record: VmRecord, last: VmRecord | None) -> Change:
    metadata, given = record.observed.vm.metadata, record.allocation
    return {
        "kind": "promise",
        "uuid": record.uuid,
        "name": (metadata.instance_name if metadata else "") or record.observed.vm.name,
        "project": metadata.project if metadata else "",
        "flavor": metadata.flavor if metadata else "",
        "state": given.state.value,
        "before": last.allocation.state.value if last is not None else "",
        "reason": given.reason.text[:LONGEST_TEXT] or _without_reason(record, last),
        "reason_code": given.reason.label,
    }


def _host(what: str, text: str) -> Change:
    states = ("fails", "works") if text else ("works", "fails")
    return {
        "kind": "host",
        "uuid": "",
        "name": what,
        "project": "",
        "flavor": "",
        "state": states[0],
        "before": states[1],
        "reason": text[:LONGEST_TEXT],
        "reason_code": "",
    }
