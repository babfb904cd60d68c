# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

from tests.unit.agent.serve.test_counters import as_told
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES, History, Sample
from vmqos.agent.serve import counters


def sample(number: float) -> Sample:
    return (number, number * 10, None, 0.4)


def since(
    history: History, when: float, uuids: Collection[str] | None = None, names: Collection[str] | None = None
) -> SimpleNamespace:
    """What is told of it."""
    return SimpleNamespace(**as_told(counters.history(history.columns(when, uuids, names), 1.0)))


def test_each_series_has_one_value_or_none_for_each_time() -> None:
    history = History(3)
    history.add(1.0, {"a": sample(1)})
    history.add(2.0, {"a": sample(2), "b": sample(5)})
    past = since(history, 0.0)
    assert past.times == [1.0, 2.0]
    assert past.vms["a"] == {"llc_occupancy": [1, 2], "total": [10, 20], "local": [None, None], "remote": [0, 0]}
    assert past.vms["b"]["llc_occupancy"] == [None, 5]


def test_the_oldest_are_overwritten() -> None:
    history = History(3)
    for number in range(5):
        history.add(float(number), {"a": sample(number)})
    past = since(history, 0.0)
    assert past.times == [2.0, 3.0, 4.0]
    assert past.vms["a"]["llc_occupancy"] == [2, 3, 4]


def test_a_vm_that_came_again_does_not_inherit_what_was_there_before() -> None:
    history = History(4)
    for number, samples in enumerate(({"a": sample(1)}, {}, {"a": sample(3)})):
        history.add(float(number), samples)
    assert since(history, 0.0).vms["a"]["llc_occupancy"] == [None, None, 3]


def test_a_vm_that_is_gone_is_forgotten() -> None:
    history = History(4)
    history.add(1.0, {"a": sample(1)})
    history.add(2.0, {})
    assert since(history, 0.0).vms == {}


def test_a_question_may_be_for_less() -> None:
    history = History(4)
    for number in range(4):
        history.add(float(number), {"a": sample(number), "b": sample(number)})
    past = since(history, 2.0, {"b"})
    assert past.times == [2.0, 3.0]
    assert list(past.vms) == ["b"]
    assert past.vms["b"]["llc_occupancy"] == [2, 3]


def test_a_clock_that_was_set_back_leaves_the_order_in_which_it_was_read() -> None:
    history = History(3)
    for number, when in enumerate((1.0, 8.0, 9.0, 5.0)):
        history.add(when, {"a": sample(number)})
    assert (since(history, 0.0).times, since(history, 6.0).times) == ([8.0, 9.0, 5.0], [8.0, 9.0])
    assert since(history, 6.0).vms["a"]["llc_occupancy"] == [1, 2]


def test_a_question_may_be_for_some_series() -> None:
    history = History(4, SERIES + EXECUTED)
    history.add(1.0, {"a": (*sample(1), 1.5, 2.0, 3.0), "b": (*sample(2), 1.5, 2.0, 3.0)})
    past = since(history, 0.0, names={"total", "instructions", "core_watts"})
    assert past.vms == {"a": {"total": [10], "instructions": [2]}, "b": {"total": [20], "instructions": [2]}}


def test_no_capacity_remembers_nothing() -> None:
    history = History(0)
    history.add(1.0, {"a": sample(1)})
    assert since(history, 0.0).times == []


def test_further_series_are_remembered_beside_the_counters_and_a_ratio_keeps_its_fraction() -> None:
    history = History(3, SERIES + EXECUTED)
    history.add(1.0, {"a": (*sample(1), 1.23456, 2.6e9, 1234.6, 0.25), "b": (*sample(2), None, None, None, None)})
    past = since(history, 0.0)
    assert past.vms["a"]["remote"] == [0]
    assert [past.vms["a"][name] for name in EXECUTED] == [[1.235], [2_600_000_000], [1235], [0.25]]
    assert [past.vms["b"][name] for name in EXECUTED] == [[None], [None], [None], [None]]


def test_series_that_come_later_are_gaps_before_and_those_that_were_there_keep_their_values() -> None:
    history = History(3, SERIES + EXECUTED)
    for second in (1.0, 2.0):
        history.add(second, {"a": (*sample(second), 1.5, 2.0, 3.0, 1.0)})
    history.widen(PACKAGES)
    history.widen(PACKAGES)
    for second in (3.0, 4.0):
        read = (*sample(second), 1.5, 2.0, 3.0, 1.0)
        history.add(second, {"a": (*read, 12.3456, 0.75, None, 0.5), "without a group": read})
    past = since(history, 0.0)
    assert tuple(past.vms["a"]) == SERIES + EXECUTED + PACKAGES
    assert past.vms["a"]["llc_occupancy"] == [2, 3, 4]
    assert past.vms["a"]["core_watts"] == [None, 12.346, 12.346]
    assert past.vms["a"]["llc_hit_stalls"] == [None, None, None]
    assert past.vms["without a group"]["llc_miss_stalls"] == [None, None, None]
