# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.agent.serve.test_vms import GROUP, UUID, snapshot
from vmqos.agent.remember.changes import LONGEST_TEXT, Change, Seen, between
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, PromiseState
from vmqos.reason import NO_REASON, Code, Reason

KEPT = snapshot().vms[UUID]


def standing(state: PromiseState, reason: Reason = NO_REASON, group: str = GROUP) -> VmRecord:
    return replace(KEPT, allocation=Allocation(state, group, reason=reason))


def changes(before: VmRecord | None, after: VmRecord | None) -> list[Change]:
    return list(between(*(Seen({UUID: record} if record is not None else {}) for record in (before, after))))


def test_a_vm_that_comes_has_its_first_state() -> None:
    (told,) = changes(None, KEPT)
    assert told == {
        "kind": "promise", "uuid": UUID, "name": "gold", "project": "p", "flavor": "c4", "state": "kept", "before": "",
        "reason": "", "reason_code": "",
    }  # fmt: skip


def test_a_vm_that_goes_has_ended() -> None:
    (told,) = changes(standing(PromiseState.PENDING, Reason(Code.NO_WAYS, "no room")), None)
    assert (told["kind"], told["state"], told["before"], told["reason"]) == ("ended", "", "pending", "")


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (standing(PromiseState.KEPT), None),
        (standing(PromiseState.DEGRADED, Reason(Code.REFUSED, "refused")), ("degraded", "kept", "refused")),
        (standing(PromiseState.KEPT, Reason(Code.ROUNDED_UP, "rounded")), ("kept", "kept", "rounded")),
        (
            standing(PromiseState.KEPT, group="vmqos.shared-2"),
            ("kept", "kept", "it is in the group vmqos.shared-2 now"),
        ),
        (standing(PromiseState.KEPT, group=""), ("kept", "kept", "it is in the default group now")),
        (standing(PromiseState.NONE, group=""), ("none", "kept", "")),
    ],
)
def test_a_promise_changes_with_its_state_its_reason_or_its_group(
    after: VmRecord, told: tuple[str, str, str] | None
) -> None:
    found = [(one["state"], one["before"], one["reason"]) for one in changes(standing(PromiseState.KEPT), after)]
    assert found == ([told] if told else [])


def test_another_number_in_the_text_of_a_reason_is_no_change() -> None:
    some, fewer = (Reason(Code.TASKS_MISSING, f"{number} of 9 tasks") for number in (5, 3))
    assert changes(standing(PromiseState.DEGRADED, some), standing(PromiseState.DEGRADED, fewer)) == []


def test_the_host_is_told_when_it_fails_and_when_it_works_again_and_not_why_it_fails_now() -> None:
    fine, lost = Seen({}, {"resctrl": "", "libvirt": ""}), Seen({}, {"resctrl": "not mounted", "libvirt": ""})
    assert list(between(Seen(), fine)) == []
    (told,) = between(fine, lost)
    assert (told["kind"], told["name"], told["state"], told["reason"]) == ("host", "resctrl", "fails", "not mounted")
    assert list(between(lost, replace(lost, troubles={"resctrl": "another", "libvirt": ""}))) == []
    (told,) = between(lost, fine)
    assert (told["name"], told["state"], told["before"], told["reason"]) == ("resctrl", "works", "fails", "")


def test_texts_are_bounded() -> None:
    (told,) = changes(None, standing(PromiseState.PENDING, Reason(Code.OTHER, "x" * 10_000)))
    assert len(told["reason"]) == LONGEST_TEXT
