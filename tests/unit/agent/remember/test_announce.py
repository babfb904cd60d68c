# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.unit.agent.remember.test_changes import standing
from tests.unit.agent.serve.test_vms import UUID
from vmqos.agent.remember import announce as announcing
from vmqos.agent.remember.announce import announce, announce_other_reason
from vmqos.agent.remember.changes import LONGEST_TEXT, Seen, between
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import PromiseState
from vmqos.daemon.log_once import BURST, LogOnce
from vmqos.reason import Code, Reason

MEANS = "; VMs that start or change are not served until it works again, those that are known keep what they have"
"""What the log says after the reason for which libvirt fails."""

PENDING = standing(PromiseState.PENDING, Reason(Code.NO_WAYS, "no room"))


def told(caplog: pytest.LogCaptureFixture, before: VmRecord | None, after: VmRecord | None) -> list[tuple[Any, ...]]:
    """What is logged of a change: the level, the text, and the fields."""
    first, second = ({UUID: record} if record is not None else {} for record in (before, after))
    log = EventLog()
    log.add(between(Seen(), Seen(first, {"libvirt": "gone"})))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        announce(Seen(first), Seen(second), log.add(between(Seen(first), Seen(second))))
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
            announce(before, after, log.add(between(before, after)))
    assert [(record.levelname, record.message, record.journal_fields) for record in caplog.records] == [  # type: ignore[attr-defined]
        (
            "WARNING",
            f"libvirt: fails: no answer{MEANS}",
            {"VMQOS_PART": "libvirt", "VMQOS_STATE": "fails", "VMQOS_EVENT": "1"},
        ),
        ("INFO", "libvirt: works again", {"VMQOS_PART": "libvirt", "VMQOS_STATE": "works", "VMQOS_EVENT": "2"}),
    ]


@pytest.mark.parametrize(("part", "level"), [("resctrl", "ERROR"), ("libvirt", "WARNING")])
def test_a_host_that_can_keep_no_promise_is_an_error_whose_reason_is_told_in_full(
    caplog: pytest.LogCaptureFixture, part: str, level: str
) -> None:
    reason = "x" * 2 * LONGEST_TEXT
    before, after = Seen(troubles={part: ""}), Seen(troubles={part: reason})
    announce(before, after, EventLog().add(between(before, after)))
    means = MEANS if part == "libvirt" else ""
    assert [(record.levelname, record.message) for record in caplog.records] == [
        (level, f"{part}: fails: {reason}{means}")
    ]


def test_another_reason_of_what_fails_is_logged_without_an_event_and_only_some_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    once = LogOnce(announcing.LOG)
    for number in range(2 * BURST):
        announce_other_reason("resctrl", f"held by process {number}", once)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", f"resctrl: fails: held by process {number}") for number in range(BURST)
    ]
    assert {tuple(record.journal_fields.items()) for record in caplog.records} == {  # type: ignore[attr-defined]
        (("VMQOS_PART", "resctrl"), ("VMQOS_STATE", "fails"))
    }
