# SPDX-License-Identifier: Apache-2.0
"""Answers that are used again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from nova_plugin.scheduler.cached import LONGEST_PAUSE, Cached
from nova_plugin.scheduler.placement import PlacementFailed


class Oracle:
    """Counts how often it is asked; answers with the number, or fails while it is out of order."""

    def __init__(self) -> None:
        self.asked = 0
        self.works = True
        self.now = 100.0

    def ask(self) -> int:
        self.asked += 1
        if not self.works:
            raise PlacementFailed(f"failure {self.asked}")
        return self.asked

    def cached(self, lifetime: float = 10) -> Cached[int]:
        return Cached("all", self.ask, lambda: lifetime, lambda: self.now)


@pytest.fixture
def oracle() -> Oracle:
    return Oracle()


def test_an_answer_is_used_again_until_it_is_too_old(oracle: Oracle) -> None:
    cached = oracle.cached()
    assert [cached.get(), cached.get()] == [1, 1]
    oracle.now += 9.9
    assert cached.get() == 1
    oracle.now += 0.1
    assert [cached.get(), cached.get()] == [2, 2]


def test_with_no_lifetime_every_question_is_asked(oracle: Oracle) -> None:
    cached = oracle.cached(lifetime=0)
    assert [cached.get(), cached.get()] == [1, 2]


def test_an_answer_that_does_not_help_is_asked_for_anew_unless_it_is_of_this_moment(oracle: Oracle) -> None:
    cached = oracle.cached()
    assert not cached.outdate(1)
    assert cached.get() == 1
    oracle.now += 1
    assert not cached.outdate(1) and cached.get() == 1
    oracle.now += 0.1
    assert cached.outdate(1) and [cached.get(), cached.get()] == [2, 2]
    oracle.works = False
    oracle.now += 2
    assert cached.outdate(1) and cached.get() == 2
    assert not cached.outdate(1) and cached.get() == 2
    assert oracle.asked == 3


def test_after_a_failure_the_last_answer_stays_in_use_and_the_pauses_grow(oracle: Oracle) -> None:
    cached = oracle.cached()
    assert cached.get() == 1
    oracle.works, begun = False, oracle.now
    tries = []
    for _ in range(3000):
        oracle.now += 0.125
        before = oracle.asked
        assert cached.get() == 1
        if oracle.asked > before:
            tries.append(oracle.now - begun - 10)
    assert tries[:8] == [0, 1, 3, 7, 15, 31, 63, 63 + LONGEST_PAUSE]
    oracle.works = True
    oracle.now += LONGEST_PAUSE
    assert cached.get() == oracle.asked


def test_without_any_answer_the_failure_is_told_and_not_asked_again_at_once(oracle: Oracle) -> None:
    cached = oracle.cached()
    oracle.works = False
    for _ in range(3):
        with pytest.raises(PlacementFailed, match="failure 1"):
            cached.get()
    assert oracle.asked == 1
    oracle.works = True
    oracle.now += 1
    assert cached.get() == 2


def test_the_pause_after_a_failure_begins_when_the_question_has_failed() -> None:
    """Else each of the threads that wait for the first answer asks a Placement that hangs, one after the other."""
    oracle = Oracle()
    oracle.works = False

    def ask() -> int:
        oracle.now += 60
        return oracle.ask()

    cached = Cached("all", ask, lambda: 10, lambda: oracle.now)
    for _ in range(3):
        with pytest.raises(PlacementFailed, match="failure 1"):
            cached.get()


def test_a_failure_and_its_end_are_logged_once_each(oracle: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cached = oracle.cached()
    oracle.works = False
    for _ in range(3):
        with pytest.raises(PlacementFailed):
            cached.get()
    oracle.works = True
    oracle.now += 1
    cached.get()
    failed, mended = caplog.messages
    assert "does not tell all; there is no earlier answer; next try in 1 s: failure 1" in failed
    assert mended == "Placement tells all again"


def test_one_thread_asks_and_the_others_do_not_wait_where_there_is_an_answer() -> None:
    asking, answer = threading.Event(), threading.Event()
    values = iter([1, 2])

    def ask() -> int:
        value = next(values)
        if value == 2:
            asking.set()
            answer.wait(10)
        return value

    cached = Cached("all", ask, lambda: 0)
    assert cached.get() == 1
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(cached.get()))
    thread.start()
    assert asking.wait(10)
    assert cached.get() == 1
    answer.set()
    thread.join()
    assert found == [2]


def test_threads_that_wait_for_the_first_answer_share_it() -> None:
    asked: list[int] = []
    begun = threading.Event()
    go: Callable[[float], bool] = (gate := threading.Event()).wait

    def ask() -> int:
        asked.append(1)
        begun.set()
        go(10)
        return len(asked)

    cached = Cached("all", ask, lambda: 100)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(cached.get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    gate.set()
    for thread in threads:
        thread.join()
    assert (found, len(asked)) == ([1, 1, 1, 1], 1)
