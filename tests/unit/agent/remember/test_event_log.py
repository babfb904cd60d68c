# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from unittest.mock import patch

import pytest

from vmqos.agent.remember import event_log
from vmqos.agent.remember.changes import Change
from vmqos.agent.remember.event_log import EventLog


def change(name: str) -> Change:
    return {
        "kind": "host", "uuid": "", "name": name, "state": "fails", "before": "works", "reason": "", "reason_code": "",
    }  # fmt: skip


def names(log: EventLog, after: int = 0, epoch: str = "") -> list[str]:
    return [event["name"] for event in log.after(after, epoch)["events"]]


def test_events_are_numbered_from_1_and_told_from_the_one_that_the_client_knows() -> None:
    log = EventLog()
    log.add([change("a"), change("b")])
    log.add([change("c")])
    told = log.after(0)
    assert [event["number"] for event in told["events"]] == [1, 2, 3]
    assert (told["first"], told["last"]) == (1, 3)
    assert names(log, 2) == ["c"] and names(log, 3) == [] and names(log, 99) == []


def test_an_empty_log_says_that_nothing_was_forgotten() -> None:
    told = EventLog().after(0)
    assert (told["first"], told["last"], told["events"]) == (1, 0, [])


def test_the_oldest_are_forgotten_and_first_says_so() -> None:
    with patch.object(event_log, "MOST", 3):
        log = EventLog()
    log.add(change(str(number)) for number in range(1, 6))
    told = log.after(0)
    assert (told["first"], told["last"], names(log)) == (3, 5, ["3", "4", "5"])


def test_to_a_client_of_another_epoch_all_events_are_news() -> None:
    log = EventLog()
    log.add([change("a"), change("b")])
    assert names(log, 2, log.epoch) == []
    assert names(log, 2, "of the agent before") == ["a", "b"]
    assert EventLog().epoch != log.epoch


def test_a_client_waits_until_there_is_an_event() -> None:
    log = EventLog()
    threading.Timer(0.2, lambda: log.add([change("a")])).start()
    began = time.monotonic()
    assert [event["name"] for event in log.after(0, wait=20.0)["events"]] == ["a"]
    assert 0.1 < time.monotonic() - began < 19


@pytest.mark.parametrize("closes", [True, False])
def test_nothing_is_waited_for_longer_than_asked_nor_after_the_agents_end(closes: bool) -> None:
    log = EventLog()
    if closes:
        threading.Timer(0.2, log.close).start()
    began = time.monotonic()
    assert log.after(0, wait=20.0 if closes else 0.2)["events"] == []
    assert 0.1 < time.monotonic() - began < 19
