# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vmqos.gateway.openstack.notification import Notification, Position, due
from vmqos.local_api import contract

DEFINITIONS = Path(__file__).parents[4] / "etc" / "ceilometer" / "event_definitions.yaml"

KEPT: contract.Event = {
    "number": 7,
    "time": 1793999000.25,
    "kind": "promise",
    "uuid": "u",
    "name": "db-1",
    "project": "p",
    "flavor": "gold",
    "state": "kept",
    "before": "pending",
    "reason": "",
    "reason_code": "",
}


def told(*events: contract.Event, first: int | None = None, epoch: str = "e") -> contract.Events:
    """An answer of the agent."""
    numbers = [event["number"] for event in events] or [0]
    return {"epoch": epoch, "first": first or numbers[0], "last": numbers[-1], "events": list(events)}


def numbered(*numbers: int) -> list[contract.Event]:
    return [{**KEPT, "number": number} for number in numbers]


def sent(found: contract.Events, position: Position, unsent: int = 0) -> list[tuple[Notification, Position]]:
    return list(due(found, position, "node-1", 2000.0, unsent))


def only(event: Any) -> Notification:
    ((notification, _),) = sent(told(event), Position("e", event["number"] - 1))
    return notification


def test_a_promise_has_everything_in_its_payload_and_the_time_at_which_it_changed() -> None:
    found = only(KEPT)
    assert (found.event_type, found.priority, found.moment) == ("vmqos.vm.promise", "info", KEPT["time"])
    assert found.payload == {
        "host": "node-1", "uuid": "u", "name": "db-1", "project_id": "p", "flavor": "gold", "state": "kept",
        "old_state": "pending", "reason_code": "", "reason": "", "time": "2026-11-06T21:03:20.250000+00:00",
        "epoch": "e", "number": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "event_type", "priority"),
    [
        ({"state": "none"}, "vmqos.vm.promise", "info"),
        ({"state": "pending", "reason_code": "no-ways"}, "vmqos.vm.promise", "error"),
        ({"state": "degraded"}, "vmqos.vm.promise", "error"),
        ({"kind": "ended", "state": "", "before": "pending"}, "vmqos.vm.ended", "info"),
        ({"kind": "host", "name": "libvirt", "state": "fails"}, "vmqos.host.state", "error"),
        ({"kind": "host", "name": "libvirt", "state": "works"}, "vmqos.host.state", "info"),
        ({"kind": "neighbour", "state": "slowed", "before": "undisturbed"}, "vmqos.vm.neighbour", "info"),
    ],
)
def test_what_needs_somebody_is_an_error_and_all_else_is_info(
    changes: dict[str, str], event_type: str, priority: str
) -> None:
    found = only({**KEPT, **changes})
    assert (found.event_type, found.priority) == (event_type, priority)


def test_a_vm_that_is_slowed_has_its_neighbour_in_the_payload_and_no_other_event_has_one() -> None:
    assert only({**KEPT, "kind": "neighbour", "culprit": "w"}).payload["culprit"] == "w"
    assert "culprit" not in only(KEPT).payload


def test_ceilometer_makes_a_trait_of_every_field() -> None:
    events = [KEPT, {**KEPT, "kind": "neighbour", "culprit": "w"}]
    lost = [notification for notification, _ in sent(told(*numbered(7), epoch="f"), Position("e", 3))]
    fields = {field for one in (*map(only, events), *lost) for field in one.payload}
    (definition,) = yaml.safe_load(DEFINITIONS.read_text(encoding="utf-8"))
    assert {trait["fields"] for trait in definition["traits"].values()} == {f"payload.{field}" for field in fields}


def test_an_earlier_agent_that_tells_no_project_is_understood() -> None:
    event = {key: value for key, value in KEPT.items() if key not in ("project", "flavor")}
    assert (only(event).payload["project_id"], only(event).payload["flavor"]) == ("", "")


def test_an_event_has_the_same_id_whenever_it_is_sent_and_no_other_event_has_it() -> None:
    assert only(KEPT) == only(KEPT)
    others = [only({**KEPT, "number": 8}), sent(told(KEPT, epoch="f"), Position("f", 6))[0][0]]
    others.append(next(due(told(KEPT), Position("e", 6), "node-2", 2000.0))[0])
    assert len({one.message_id for one in (only(KEPT), *others)}) == 4


def test_events_come_in_order_each_with_the_position_after_it() -> None:
    found = sent(told(*numbered(4, 5, 6)), Position("e", 3))
    assert [position for _, position in found] == [Position("e", number) for number in (4, 5, 6)]


def test_events_that_the_agent_forgot_are_told_before_those_that_it_remembers() -> None:
    found = sent(told(*numbered(10, 11)), Position("e", 3))
    (lost, position), *rest = found
    assert (lost.event_type, lost.priority, lost.lost, position) == (
        "vmqos.host.events_lost", "error", 6, Position("e", 9),
    )  # fmt: skip
    assert (lost.payload["lost"], lost.payload["reason_code"]) == (6, "too-many-events")
    assert [position.number for _, position in rest] == [10, 11]


@pytest.mark.parametrize(("unsent", "priority"), [(0, "info"), (4, "error")])
def test_another_run_of_the_agent_is_told_and_its_events_follow_from_the_first(unsent: int, priority: str) -> None:
    (restarted, position), *rest = sent(told(*numbered(1, 2), epoch="f"), Position("e", 9), unsent)
    assert (restarted.event_type, restarted.priority) == ("vmqos.host.events_lost", priority)
    assert (restarted.payload["reason_code"], restarted.payload["lost"]) == ("agent-restarted", unsent)
    assert position == Position("f", 0)
    assert [position for _, position in rest] == [Position("f", 1), Position("f", 2)]


def test_another_run_that_has_forgotten_its_first_events_already_tells_both() -> None:
    found = sent(told(*numbered(10), epoch="f"), Position("e", 9))
    assert [one.payload.get("lost") for one, _ in found] == [0, 9, None]


def test_a_gateway_that_never_sent_anything_begins_with_what_the_agent_remembers() -> None:
    assert [position.number for _, position in sent(told(*numbered(10, 11)), Position())] == [10, 11]


def test_nothing_new_is_nothing_to_send() -> None:
    assert sent({"epoch": "e", "first": 1, "last": 3, "events": []}, Position("e", 3)) == []
    assert sent({"epoch": "e", "first": 1, "last": 0, "events": []}, Position()) == []
