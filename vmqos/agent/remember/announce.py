# SPDX-License-Identifier: Apache-2.0
"""The lines of the log that say how promises stand after a pass."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from vmqos.agent.remember.changes import where
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import PromiseState
from vmqos.daemon import journal
from vmqos.local_api import contract

LOG = logging.getLogger(__name__)


def announce(before: Mapping[str, VmRecord], after: Mapping[str, VmRecord], events: Iterable[contract.Event]) -> None:
    """Log each promise whose state, reason or group is not what it was; in the journal, with fields.

    :param before: the VMs after the pass before, by UUID.
    :param after: the VMs now.
    :param events: what was told of this pass.
    """
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
