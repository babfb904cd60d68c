# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.unit.agent.remember.test_changes import standing
from tests.unit.agent.serve.test_vms import UUID
from vmqos.agent.remember.announce import announce
from vmqos.agent.remember.changes import Seen, between
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import PromiseState
from vmqos.reason import Code, Reason

PENDING = standing(PromiseState.PENDING, Reason(Code.NO_WAYS, "no room"))


def told(caplog: pytest.LogCaptureFixture, before: VmRecord | None, after: VmRecord | None) -> list[tuple[Any, ...]]:
    """What is logged of a change: the level, the text, and the fields."""
    first, second = ({UUID: record} if record is not None else {} for record in (before, after))
    log = EventLog()
    log.add(between(Seen(), Seen(first, {"libvirt": "gone"})))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        announce(first, second, log.add(between(Seen(first), Seen(second))))
    return [(record.levelname, record.message, record.journal_fields) for record in caplog.records]  # type: ignore[attr-defined]


def test_a_state_that_changed_is_logged_with_the_number_of_its_event(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, standing(PromiseState.KEPT), PENDING) == [
        (
            "WARNING",
            f"VM {UUID} (instance-1): pending: no room",
            {"VMQOS_VM": UUID, "VMQOS_STATE": "pending", "VMQOS_REASON_CODE": "no-ways", "VMQOS_EVENT": "3"},
        )
    ]
    assert told(caplog, PENDING, standing(PromiseState.KEPT)) == [
        (
            "INFO",
            f"VM {UUID} (instance-1): kept",
            {"VMQOS_VM": UUID, "VMQOS_STATE": "kept", "VMQOS_EVENT": "3"},
        )
    ]


@pytest.mark.parametrize(
    ("group", "where"), [("vmqos.shared-2", "the group vmqos.shared-2"), ("", "the default group")]
)
def test_another_group_alone_is_logged_with_the_number_of_its_event(
    caplog: pytest.LogCaptureFixture, group: str, where: str
) -> None:
    ((level, text, fields),) = told(caplog, standing(PromiseState.KEPT), standing(PromiseState.KEPT, group=group))
    assert (level, text) == ("INFO", f"VM {UUID} (instance-1): kept, now in {where}")
    assert fields["VMQOS_EVENT"] == "3"


def test_a_vm_that_comes_is_logged_with_its_first_state(caplog: pytest.LogCaptureFixture) -> None:
    ((level, _, fields),) = told(caplog, None, standing(PromiseState.DEGRADED, Reason(Code.REFUSED, "refused")))
    assert (level, fields["VMQOS_EVENT"]) == ("WARNING", "2")


def test_a_reason_that_says_something_else_is_logged_and_is_no_event(caplog: pytest.LogCaptureFixture) -> None:
    after = standing(PromiseState.PENDING, Reason(Code.NO_WAYS, "still no room"))
    ((_, text, fields),) = told(caplog, PENDING, after)
    assert text.endswith("pending: still no room")
    assert "VMQOS_EVENT" not in fields


def test_what_did_not_change_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, PENDING, PENDING) == []


def test_a_vm_that_has_ended_is_logged_with_the_number_of_its_event(caplog: pytest.LogCaptureFixture) -> None:
    fields = {"VMQOS_VM": UUID, "VMQOS_STATE": "ended", "VMQOS_EVENT": "3"}
    assert told(caplog, PENDING, None) == [("INFO", f"VM {UUID} (instance-1): ended, was pending", fields)]


def test_what_fails_of_the_host_and_works_again_is_logged_with_the_number_of_its_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, well, ill = EventLog(), Seen(troubles={"libvirt": ""}), Seen(troubles={"libvirt": "no answer"})
    with caplog.at_level(logging.INFO):
        for before, after in ((Seen(), well), (well, ill), (ill, well)):
            announce({}, {}, log.add(between(before, after)))
    assert [(record.levelname, record.message, record.journal_fields) for record in caplog.records] == [  # type: ignore[attr-defined]
        (
            "WARNING",
            "libvirt: fails: no answer",
            {"VMQOS_PART": "libvirt", "VMQOS_STATE": "fails", "VMQOS_EVENT": "1"},
        ),
        ("INFO", "libvirt: works again", {"VMQOS_PART": "libvirt", "VMQOS_STATE": "works", "VMQOS_EVENT": "2"}),
    ]
