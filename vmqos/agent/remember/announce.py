# SPDX-License-Identifier: Apache-2.0
"""The lines of the log that say how promises and the host stand after a pass."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from vmqos.agent.remember.changes import where
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import PromiseState
from vmqos.daemon import journal
from vmqos.local_api import contract

LOG = logging.getLogger(__name__)


def announce(before: Mapping[str, VmRecord], after: Mapping[str, VmRecord], events: Sequence[contract.Event]) -> None:
    """Log what changed; in the journal, with fields.

    That is each promise whose state, reason or group is not what it was, each VM that has ended, and each part of the
    host that fails or works again.

    :param before: the VMs after the pass before, by UUID.
    :param after: the VMs now.
    :param events: what was told of this pass.
    """
    for event in events:
        if event["kind"] == "host":
            _announce_host(event)
    numbers = {event["uuid"]: event["number"] for event in events if event["kind"] == "promise"}
    for uuid, record in after.items():
        told, last = record.allocation, before.get(uuid)
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
            name = before[event["uuid"]].observed.vm.name
            LOG.info("VM %s (%s): ended, was %s", event["uuid"], name, event["before"], extra=found)


def _announce_host(event: contract.Event) -> None:
    found = journal.fields(VMQOS_PART=event["name"], VMQOS_STATE=event["state"], VMQOS_EVENT=str(event["number"]))
    if event["state"] == "fails":
        LOG.warning("%s: fails: %s", event["name"], event["reason"], extra=found)
    else:
        LOG.info("%s: works again", event["name"], extra=found)
