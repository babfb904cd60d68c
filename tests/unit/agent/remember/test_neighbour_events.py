# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.agent.serve.test_vms import UUID, snapshot
from vmqos.agent.remember.changes import LONGEST_TEXT
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.remember.neighbour_events import GONE_FOR, MOST, SURE, NeighbourEvents, NeighbourWatch
from vmqos.agent.vm_record import VmRecord
from vmqos.hypervisor.model import Process
from vmqos.insight import Cause, PairVerdict

THIEF = "22222222-2222-4222-8222-222222222222"
VICTIM = snapshot().vms[UUID]
BEGAN = 1000.0
"""When the thief began; there are samples from a minute before."""


def called(uuid: str, name: str) -> VmRecord:
    vm = replace(VICTIM.observed.vm, uuid=uuid, name=name, metadata=None)
    return replace(VICTIM, observed=replace(VICTIM.observed, vm=vm))


class Told:
    """Events of judgements that a test makes up, at times that it chooses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vms = {UUID: VICTIM, THIEF: called(THIEF, "batch-1")}
        self.log = EventLog()
        self.now = 0.0
        self.judged_from = BEGAN - 60.0
        self.sampled = [BEGAN + 2.0 * number for number in range(-30, 60)]
        self.events = NeighbourEvents(self.log, lambda: self.vms)
        monkeypatch.setattr("vmqos.agent.remember.neighbour_events.time.monotonic", lambda: self.now)

    def hear(self, *pairs: PairVerdict, after: float = 10.0, counted: bool = True) -> None:
        self.now += after
        judged = [moment for moment in self.sampled if moment >= self.judged_from]
        self.events.hear(pairs, judged, counted)

    @property
    def states(self) -> list[str]:
        return [event["state"] for event in self.log.after(0)["events"]]

    @property
    def last(self) -> Any:
        return self.log.after(0)["events"][-1]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def pair(
    confidence: float = 0.9, until: float | None = None, cause: Cause = Cause.CACHE, culprit: str = THIEF
) -> PairVerdict:
    advice = "vmqos flavor set x"
    return PairVerdict(culprit, UUID, cause, BEGAN, until, 1.84, 4e6, confidence, ("it lost 4 MiB",), advice)


def test_a_pair_is_told_once_when_it_begins(told: Told) -> None:
    for _ in range(3):
        told.hear(pair())
    (event,) = told.log.after(0)["events"]
    assert event == {
        "number": 1, "time": event["time"], "kind": "neighbour", "uuid": UUID, "name": "gold", "project": "p",
        "flavor": "c4", "state": "slowed", "before": "undisturbed", "reason_code": "cache", "culprit": THIEF,
        "reason": f"batch-1 ({THIEF}) takes cache from it: its work takes 1.8 times as long",
    }  # fmt: skip


def test_a_factor_without_hardware_events_is_told_to_be_an_estimate(told: Told) -> None:
    told.hear(pair(cause=Cause.BANDWIDTH), counted=False)
    assert told.last["reason"].endswith("takes memory bandwidth from it: its work takes 1.8 times as long, by estimate")


@pytest.mark.parametrize("judged", [pair(SURE - 0.01), pair(until=BEGAN + 9.0), pair(culprit="gone")])
def test_what_is_not_sure_or_over_already_or_of_a_vm_that_ended_is_not_told(told: Told, judged: PairVerdict) -> None:
    told.hear(judged)
    assert told.states == []


def test_a_pair_that_gets_less_sure_goes_on(told: Told) -> None:
    told.hear(pair())
    for _ in range(10):
        told.hear(pair(0.3), after=30.0)
    assert told.states == ["slowed"]


@pytest.mark.parametrize("gone", [(), (pair(until=BEGAN + 9.0),)], ids=["not found any more", "the culprit is quiet"])
def test_a_pair_is_over_when_it_was_gone_for_a_minute(told: Told, gone: tuple[PairVerdict, ...]) -> None:
    told.hear(pair())
    told.hear(*gone)
    told.hear(*gone, after=GONE_FOR - 1)
    assert told.states == ["slowed"]
    told.hear(*gone, after=1)
    assert told.states == ["slowed", "undisturbed"]
    assert (told.last["before"], told.last["culprit"], told.last["reason_code"]) == ("slowed", THIEF, "cache")
    assert told.last["reason"] == f"batch-1 ({THIEF}) is not found to slow it any more"
    told.hear(*gone, after=1000)
    assert told.states == ["slowed", "undisturbed"]


def test_a_pair_that_comes_and_goes_is_told_once_a_minute_at_most(told: Told) -> None:
    for _ in range(20):
        told.hear(pair(), after=20.0)
        told.hear(after=20.0)
    assert told.states == ["slowed"]
    for _ in range(5):
        told.hear(pair(), after=1.0)
        told.hear(after=1.0)
        told.hear(after=GONE_FOR)
    assert told.states == ["slowed", "undisturbed"] * 5


def test_what_began_too_long_ago_to_be_judged_is_not_told_to_be_over(told: Told) -> None:
    told.hear(pair())
    told.judged_from = BEGAN + 1.0
    told.hear()
    told.judged_from = math.inf
    told.hear(after=GONE_FOR)
    assert told.states == ["slowed", "unknown"]
    assert "too long ago to tell whether batch-1" in told.last["reason"]


def test_a_clock_that_was_set_back_has_nothing_told_to_be_over_that_is_not_known_to_be(told: Told) -> None:
    told.hear(pair())
    # The samples in which it began are gone, and those of now are called earlier.
    told.sampled, told.judged_from = [moment - 3600.0 for moment in told.sampled], -math.inf
    told.hear()
    told.hear(after=GONE_FOR)
    assert told.states == ["slowed", "unknown"]


def test_what_began_after_the_clock_was_set_back_is_known_to_be_over(told: Told) -> None:
    told.hear(pair())
    # The oldest samples are of before.
    told.sampled = [moment + 3600.0 for moment in told.sampled[:20]] + told.sampled[20:]
    told.hear()
    told.hear(after=GONE_FOR)
    assert told.states == ["slowed", "undisturbed"]


def test_whether_it_is_over_is_known_by_when_it_was_first_missed(told: Told) -> None:
    told.hear(pair())
    told.hear()
    told.judged_from = BEGAN + 50.0
    told.hear(after=GONE_FOR)
    assert told.states[-1] == "undisturbed"


def test_a_culprit_that_ends_slows_nobody_any_more(told: Told) -> None:
    told.hear(pair())
    del told.vms[THIEF]
    told.hear(pair())
    assert told.states == ["slowed", "undisturbed"]
    assert told.last["reason"] == f"batch-1 ({THIEF}) has ended"


@pytest.mark.parametrize(
    ("restarted", "state", "reason"),
    [
        (THIEF, "undisturbed", f"batch-1 ({THIEF}) was started again"),
        (UUID, "unknown", f"it was started again, and whether batch-1 ({THIEF}) slows it now is not known yet"),
    ],
)
def test_a_pair_is_of_one_run_of_both_vms(told: Told, restarted: str, state: str, reason: str) -> None:
    told.hear(pair())
    record = told.vms[restarted]
    vm = replace(record.observed.vm, process=Process(99, 99))
    told.vms[restarted] = replace(record, observed=replace(record.observed, vm=vm))
    told.hear()
    assert told.states == ["slowed", state]
    assert (told.last["before"], told.last["reason"]) == ("slowed", reason)
    told.hear(pair())
    assert told.states == ["slowed", state, "slowed"], "it is found anew"


def test_the_end_of_a_victim_is_told_elsewhere(told: Told) -> None:
    told.hear(pair())
    del told.vms[UUID]
    told.hear(pair())
    told.hear(after=GONE_FOR)
    assert told.states == ["slowed"]


def test_a_vm_that_slows_all_others_leaves_room_for_other_events(told: Told) -> None:
    for number in range(2 * MOST):
        told.vms[f"v{number}"] = called(f"v{number}", f"web-{number}")
    told.hear(*(replace(pair(), victim=f"v{number}") for number in range(2 * MOST)))
    found = told.log.after(0)["events"]
    assert [event["uuid"] for event in found] == [f"v{number}" for number in range(MOST)], "the surest ones"


def test_a_long_name_is_cut(told: Told) -> None:
    told.vms[THIEF] = called(THIEF, "x" * 2000)
    told.hear(pair())
    assert len(told.last["reason"]) == LONGEST_TEXT


def test_it_is_logged_with_the_number_of_its_event(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        told.hear(pair())
    (record,) = caplog.records
    assert record.message == f"VM {UUID} (instance-1): slowed: {told.last['reason']}"
    assert record.journal_fields == {  # type: ignore[attr-defined]
        "VMQOS_VM": UUID, "VMQOS_STATE": "slowed", "VMQOS_REASON_CODE": "cache", "VMQOS_NEIGHBOUR": THIEF,
        "VMQOS_EVENT": "1",
    }  # fmt: skip


def test_the_watch_judges_again_and_again_until_it_is_stopped() -> None:
    done, judged = list[float](), threading.Event()

    def judge() -> None:
        done.append(time.monotonic())
        if len(done) >= 3:
            judged.set()

    watch = NeighbourWatch(judge, 0.01)
    watch.start()
    assert judged.wait(30)
    watch.stop()
    ended = len(done)
    time.sleep(0.05)
    assert len(done) == ended
    assert all(later - earlier >= 0.01 for earlier, later in itertools.pairwise(done))


def test_the_watch_ends_at_once_and_with_an_interval_of_0_never_begins() -> None:
    began = time.monotonic()
    for interval in (0.0, 3600.0):
        watch = NeighbourWatch(lambda: pytest.fail("nobody asked"), interval)
        watch.start()
        watch.stop()
    assert time.monotonic() - began < 60
