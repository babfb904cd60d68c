# SPDX-License-Identifier: Apache-2.0
"""What is sent of the agent's events, and after which event that goes on; pure.

A notification looks like Nova's unversioned ones: an envelope, and a flat payload whose fields become Ceilometer's
traits. Ceilometer makes events of the priorities info and error alone, and what nobody takes stays in the broker's
queue for ever: so there is no warn.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from vmqos.local_api import contract

PROMISE = "vmqos.vm.promise"
ENDED = "vmqos.vm.ended"
NEIGHBOUR = "vmqos.vm.neighbour"
HOST = "vmqos.host.state"
LOST = "vmqos.host.events_lost"

AGENT_RESTARTED = "agent-restarted"
TOO_MANY = "too-many-events"

Priority = Literal["info", "error"]

_NOT_KEPT = frozenset({"pending", "degraded"})

_IDS = uuid.UUID("5b0a2c1e-6d0f-4f6c-9a5e-6c1f0f0d7a11")
"""The namespace of the ids of messages."""


@dataclass(frozen=True, slots=True)
class Position:
    """Which event was sent last.

    :ivar epoch: the agent's run that numbered it; empty for a gateway that begins.
    :ivar number: its number; 0 where none of this run was sent yet.
    """

    epoch: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Notification:
    """One message.

    :ivar message_id: the same for the same event, however often it is sent.
    :ivar moment: when it happened, in seconds since 1970.
    :ivar lost: how many events it says were never sent.
    """

    event_type: str
    priority: Priority
    payload: Mapping[str, object]
    message_id: str
    moment: float
    lost: int = 0


def due(
    found: contract.Events, position: Position, host: str, now: float, unsent: int = 0
) -> Iterator[tuple[Notification, Position]]:
    """What is to be sent now, in order, and the position after each.

    :param found: what the agent answers to a question for the events after ``position``.
    :param host: what this host is called.
    :param now: seconds since 1970.
    :param unsent: how many events of the position's epoch are known that were not sent.
    """
    epoch, number, is_new = found["epoch"], position.number, not position.epoch
    if epoch != position.epoch:
        number = 0
        if not is_new:
            text = f"vmqos-agent was started anew; {unsent} or more events of its last run were not sent"
            if not unsent:
                text = "vmqos-agent was started anew; events of the end of its last run may be missing"
            yield _lost(host, found, AGENT_RESTARTED, text, unsent, now), Position(epoch)
    gap = found["first"] - number - 1
    # A gateway that sends its first event has lost none.
    if gap > 0 and not is_new:
        text = f"{gap} events were not sent in time: the agent does not remember them any more"
        yield _lost(host, found, TOO_MANY, text, gap, now), Position(epoch, found["first"] - 1)
    for event in found["events"]:
        yield _of(event, epoch, host), Position(epoch, event["number"])


def _of(event: contract.Event, epoch: str, host: str) -> Notification:
    kinds = {"promise": PROMISE, "ended": ENDED, "host": HOST, "neighbour": NEIGHBOUR}
    is_bad = event["state"] in _NOT_KEPT or (event["kind"] == "host" and event["state"] == "fails")
    payload = {
        "host": host,
        "uuid": event["uuid"],
        "name": event["name"],
        "project_id": event.get("project", ""),
        "flavor": event.get("flavor", ""),
        "state": event["state"],
        "old_state": event["before"],
        "reason_code": event["reason_code"],
        "reason": event["reason"],
        "time": _iso(event["time"]),
        "epoch": epoch,
        "number": event["number"],
    }
    if event["kind"] == "neighbour":
        payload["culprit"] = event.get("culprit", "")
    return Notification(
        kinds[event["kind"]],
        "error" if is_bad else "info",
        payload,
        _id(host, epoch, event["number"]),
        event["time"],
    )


def _lost(host: str, found: contract.Events, code: str, text: str, lost: int, now: float) -> Notification:
    payload = {
        "host": host,
        "reason_code": code,
        "reason": text,
        "lost": lost,
        "time": _iso(now),
        "epoch": found["epoch"],
        "number": found["first"] - 1 if code == TOO_MANY else 0,
    }
    message_id = _id(host, found["epoch"], payload["number"], code)
    return Notification(LOST, "error" if lost else "info", payload, message_id, now, lost)


def _id(*words: object) -> str:
    return str(uuid.uuid5(_IDS, "/".join(map(str, words))))


def _iso(moment: float) -> str:
    """In UTC, always with microseconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
