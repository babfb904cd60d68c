# SPDX-License-Identifier: Apache-2.0
"""The lines of the log that say how promises and the host stand after a pass."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vmqos.agent.remember.changes import Seen, where
from vmqos.allocation import PromiseState
from vmqos.daemon import journal
from vmqos.daemon.log_once import LogOnce
from vmqos.local_api import contract

LOG = logging.getLogger(__name__)

RESCTRL = "resctrl"
"""The part of the host without which no promise can be kept."""

LIBVIRT = "libvirt"
"""The part of the host that says which VMs run."""

_MEANS = {
    LIBVIRT: "; VMs that start or change are not served until it works again, those that are known keep what they have"
}
"""What it means for VMs that a part of the host fails, where the reason does not say it."""


def announce(before: Seen, after: Seen, events: Sequence[contract.Event]) -> None:
    """Log what changed; in the journal, with fields.

    That is each promise whose state, reason or group is not what it was, each VM that has ended, and each part of the
    host that fails or works again.

    :param before: what was seen at the end of the pass before.
    :param after: what is seen now.
    :param events: what was told of this pass.
    """
    for event in events:
        if event["kind"] == "host":
            _announce_host(event, after.troubles[event["name"]])
    numbers = {event["uuid"]: event["number"] for event in events if event["kind"] == "promise"}
    for uuid, record in after.vms.items():
        told, last = record.allocation, before.vms.get(uuid)
        moved = ""
        if last is not None and (last.allocation.state, last.allocation.reason) == (told.state, told.reason):
            if last.allocation.group == told.group:
                continue
            moved = f", now in {where(told.group)}"
        level = logging.WARNING if told.state in (PromiseState.PENDING, PromiseState.DEGRADED) else logging.INFO
        found = journal.fields(
            VMQOS_VM=uuid,
            VMQOS_STATE=told.state.value,
            VMQOS_REASON_CODE=told.reason.label,
            VMQOS_EVENT=str(numbers.get(uuid, "")),
        )
        LOG.log(level, "VM %s (%s): %s%s%s", uuid, record.observed.vm.name, told.state.value, moved,
                f": {told.reason.text}" if told.reason else "", extra=found)  # fmt: skip
    for event in events:
        if event["kind"] == "ended":
            found = journal.fields(VMQOS_VM=event["uuid"], VMQOS_STATE="ended", VMQOS_EVENT=str(event["number"]))
            name = before.vms[event["uuid"]].observed.vm.name
            LOG.info("VM %s (%s): ended, was %s", event["uuid"], name, event["before"], extra=found)


def announce_other_reason(part: str, reason: str, once: LogOnce) -> None:
    """Log that a part of the host goes on failing, for another reason than the one that was logged last.

    That is no event.

    :param once: keeps reasons that change all the time from filling the log; its key is the part.
    """
    found = journal.fields(VMQOS_PART=part, VMQOS_STATE="fails")
    once.log(_level(part), part, "%s: fails: %s%s", part, reason, _MEANS.get(part, ""), fields=found)


def _announce_host(event: contract.Event, reason: str) -> None:
    """Log an event of the host.

    :param reason: why it fails, which an event has not always in full.
    """
    part = event["name"]
    found = journal.fields(VMQOS_PART=part, VMQOS_STATE=event["state"], VMQOS_EVENT=str(event["number"]))
    if event["state"] == "fails":
        LOG.log(_level(part), "%s: fails: %s%s", part, reason, _MEANS.get(part, ""), extra=found)
    else:
        LOG.info("%s: works again", part, extra=found)


def _level(part: str) -> int:
    # Without libvirt the VMs keep what they have; a pass that fails for a fault of the agent's own logs that by itself.
    return logging.ERROR if part == RESCTRL else logging.WARNING
