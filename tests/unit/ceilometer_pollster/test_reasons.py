# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging

import pytest

from ceilometer_pollster import reasons
from tests.unit.ceilometer_pollster.sweeps import GOLD, PLAIN, Instance, snapshot, vm
from vmqos.telemetry import Missing

OCCUPANCY, TOTAL = "llc_occupancy", "mbm_total_bytes"
BOTH = [Instance(GOLD), Instance(PLAIN)]


def test_there_is_no_reason_where_every_instance_has_numbers() -> None:
    assert reasons.find(snapshot([vm(GOLD), vm(PLAIN)]), BOTH) == {}


def test_each_event_without_a_number_is_a_reason_of_its_instance() -> None:
    found = reasons.find(snapshot([vm(GOLD, missing={TOTAL: Missing.UNAVAILABLE}), vm(PLAIN)]), BOTH)
    assert list(found) == [(GOLD, TOTAL)]


@pytest.mark.parametrize("missing", [Missing(one) for one in Missing if "previous" not in one and "back" not in one])
def test_every_reason_of_a_counter_is_told_in_words(missing: Missing) -> None:
    found = reasons.find(snapshot([vm(GOLD, missing={TOTAL: missing})]), BOTH[:1])
    assert len(found[GOLD, TOTAL].split()) > 3


def test_what_the_machine_does_not_count_is_one_reason_of_the_host_and_none_of_its_instances() -> None:
    lacking = {TOTAL: Missing.NO_COUNTER}
    now = reasons.find(snapshot([vm(GOLD, missing=lacking), vm(PLAIN, missing=lacking)], events=(OCCUPANCY,)), BOTH)
    assert {uuid for uuid, _ in now} == {""}
    assert (logging.WARNING, f"no instance has samples that need {TOTAL}: this machine does not count it") in [
        (line.level, line.text) for line in reasons.tell({}, now, BOTH)
    ]


def test_where_nothing_is_counted_a_running_instance_without_a_group_is_no_news() -> None:
    assert {uuid for uuid, _ in reasons.find(snapshot([], events=()), BOTH)} == {""}


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("active", logging.WARNING),
        ("paused", logging.WARNING),
        ("stopped", logging.INFO),
        ("SHUTOFF", logging.INFO),
        ("SHELVED_OFFLOADED", logging.INFO),
    ],
)
def test_only_an_instance_that_runs_is_missed(status: str, level: int) -> None:
    instances = [Instance(GOLD, status)]
    (line,) = reasons.tell({}, reasons.find(snapshot([]), instances), instances)
    assert line.level == level
    assert GOLD in line.text


def test_an_instance_that_does_not_run_has_no_samples_though_its_group_is_still_there() -> None:
    stopped = [Instance(GOLD, "stopped")]
    assert reasons.is_at_rest(stopped[0])
    assert reasons.find(snapshot([vm(GOLD)]), stopped) == {(GOLD, ""): reasons.NOT_RUNNING}


def test_a_reason_is_told_once_and_again_when_it_changes_and_when_it_is_over() -> None:
    def cycle(before: reasons.Reasons, missing: dict[str, Missing]) -> tuple[reasons.Reasons, list[str]]:
        now = reasons.find(snapshot([vm(GOLD, missing=missing)]), BOTH[:1])
        return now, [line.text for line in reasons.tell(before, now, BOTH[:1])]

    state, told = cycle({}, {TOTAL: Missing.UNAVAILABLE})
    assert len(told) == 1
    state, told = cycle(state, {TOTAL: Missing.UNAVAILABLE})
    assert told == []
    state, told = cycle(state, {TOTAL: Missing.ERROR})
    assert len(told) == 1
    state, told = cycle(state, {})
    assert told == [f"instance {GOLD} has samples that need {TOTAL} again"]
    state, told = cycle(state, {TOTAL: Missing.ERROR})
    assert len(told) == 1


def test_an_instance_that_left_is_not_said_to_have_samples_again() -> None:
    assert reasons.tell({(GOLD, TOTAL): "why"}, {}, [Instance(PLAIN)]) == []


@pytest.mark.parametrize(
    ("now", "status"),
    [
        ({(GOLD, ""): reasons.NOT_RUNNING}, "stopped"),
        ({}, "stopped"),
        ({(GOLD, ""): "it has no group"}, "active"),
        ({("", TOTAL): "this machine does not count it"}, "active"),
    ],
    ids=["it was stopped", "the same, of what is asked of running ones alone", "it lost its group", "the host's"],
)
def test_an_instance_whose_reason_gave_way_to_a_wider_one_is_not_said_to_have_samples_again(
    now: reasons.Reasons, status: str
) -> None:
    told = [line.text for line in reasons.tell({(GOLD, TOTAL): "why"}, now, [Instance(GOLD, status)])]
    assert len(told) == len(now) and not [text for text in told if "again" in text]


def test_an_instance_that_is_started_again_is_said_to_have_samples_again() -> None:
    lines = reasons.tell({(GOLD, ""): reasons.NOT_RUNNING}, {}, BOTH[:1])
    assert [line.text for line in lines] == [f"instance {GOLD} has samples of caches and memory bandwidth again"]
