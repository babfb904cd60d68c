# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.unit.eventually import eventually
from vmqos.agent.observe.looks import MOST_UNDER_WAY, Looks, NoThreadLeft

DEADLINE = 1.0
LONG = 60.0


class Slow:
    """A look that hangs for the keys that the test names, until it lets them go."""

    def __init__(self) -> None:
        self.hanging: dict[str, threading.Event] = {}
        self.seconds: dict[str, float] = {}
        self.looked: list[str] = []

    def __call__(self, key: str) -> str:
        self.looked.append(key)
        if key in self.hanging:
            assert self.hanging[key].wait(LONG)
        time.sleep(self.seconds.get(key, 0))
        if key.startswith("bad"):
            raise ValueError(key)
        return key.upper()


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    for event in made.hanging.values():
        event.set()


@pytest.fixture
def late() -> threading.Event:
    """Set when a look has ended that was left behind."""
    return threading.Event()


@pytest.fixture
def looks(slow: Slow, late: threading.Event) -> Iterator[Looks[str]]:
    made = Looks(slow, late.set)
    yield made
    made.close()


@pytest.fixture
def new_threads() -> Callable[[], int]:
    """Counts the threads that were started during the test and live."""
    before = set(threading.enumerate())
    return lambda: len(set(threading.enumerate()) - before)


def test_looks_are_made_in_order_by_one_thread(
    looks: Looks[str], slow: Slow, late: threading.Event, new_threads: Callable[[], int]
) -> None:
    for _ in range(3):
        done = looks.run(["c", "a", "b"], lambda: LONG, LONG)
        assert [(each.key, each.value, each.error) for each in done] == [(key, key.upper(), None) for key in "cab"]
        assert new_threads() == 1
    assert slow.looked == list("cab") * 3 and not looks.under_way and not late.is_set()


def test_an_exception_ends_its_own_look_alone(looks: Looks[str]) -> None:
    bad, good = looks.run(["bad", "good"], lambda: LONG, LONG)
    assert isinstance(bad.error, ValueError) and bad.value is None
    assert good.value == "GOOD"


def test_a_look_that_hangs_is_left_behind_and_its_result_is_told_later(
    looks: Looks[str], slow: Slow, late: threading.Event
) -> None:
    slow.hanging["hung"] = threading.Event()
    began = time.monotonic()
    done = looks.run(["hung", "a", "b"], lambda: DEADLINE, LONG)
    ended = time.monotonic()
    assert DEADLINE <= ended - began < LONG
    assert [each.key for each in done] == ["a", "b"] and looks.under_way.keys() == {"hung"}
    assert [each.key for each in looks.run(["hung", "a"], lambda: DEADLINE, LONG)] == ["a"]
    assert slow.looked.count("hung") == 1, "the same look is not begun twice"
    slow.hanging["hung"].set()
    assert late.wait(LONG)
    (told,) = looks.run([], lambda: DEADLINE, LONG)
    assert told.value == "HUNG" and told.seconds >= DEADLINE and not looks.under_way
    assert began <= told.began and told.began + DEADLINE <= ended
    assert [each.key for each in looks.run(["hung"], lambda: DEADLINE, LONG)] == ["hung"]


def test_each_look_that_hangs_costs_one_thread_until_it_ends(
    looks: Looks[str], slow: Slow, new_threads: Callable[[], int]
) -> None:
    slow.hanging = {str(number): threading.Event() for number in range(3)}
    for _ in range(5):
        looks.run([*slow.hanging, "a"], lambda: DEADLINE, LONG)
        assert new_threads() == len(slow.hanging) + 1
    for event in slow.hanging.values():
        event.set()
    eventually(lambda: new_threads() == 1)
    looks.close()
    eventually(lambda: new_threads() == 0)


def test_many_looks_that_hang_delay_the_others_little_longer_than_one(looks: Looks[str], slow: Slow) -> None:
    slow.hanging = {str(number): threading.Event() for number in range(30)}
    began = time.monotonic()
    done = looks.run([*slow.hanging, "a"], lambda: DEADLINE, LONG)
    took = time.monotonic() - began
    # On a busy machine the last one, too, may take longer than the little that is left for it.
    while not done:
        assert time.monotonic() < began + LONG
        done = looks.run([], lambda: DEADLINE, LONG)
    assert [each.key for each in done] == ["a"] and looks.under_way.keys() == slow.hanging.keys()
    assert took < 15 * DEADLINE, "half of the time that each of them would take by itself"


def test_no_look_is_begun_after_the_budget(looks: Looks[str], slow: Slow) -> None:
    slow.seconds = dict.fromkeys("abcdef", 0.05)
    began = time.monotonic()
    done = looks.run("abcdef", lambda: LONG, 0.1)
    assert time.monotonic() - began < LONG
    assert 0 < len(done) < 6 and [each.key for each in done] == slow.looked
    assert looks.run([], lambda: LONG, LONG) == [], "what was left is not looked at unasked"


def test_a_look_that_hangs_is_left_behind_sooner_once_other_work_waits(looks: Looks[str], slow: Slow) -> None:
    slow.hanging["hung"] = threading.Event()
    deadline = LONG

    def hurry() -> None:
        nonlocal deadline
        deadline = DEADLINE
        looks.wake()

    timer = threading.Timer(DEADLINE, hurry)
    timer.start()
    began = time.monotonic()
    assert looks.run(["hung"], lambda: deadline, LONG) == []
    assert time.monotonic() - began < LONG / 2


def test_no_further_look_is_begun_once_no_time_is_left(looks: Looks[str], slow: Slow) -> None:
    keys = [f"key {number}" for number in range(100)]
    slow.seconds = dict.fromkeys(keys, 0.05)
    seconds = LONG

    def hurry() -> None:
        nonlocal seconds
        seconds = 0.0
        looks.wake()

    timer = threading.Timer(0.2, hurry)
    timer.start()
    done = looks.run(keys, lambda: seconds, LONG)
    assert 0 < len(slow.looked) < len(keys), "each look was quick, so the rest of them would have been made as well"
    assert [*(each.key for each in done), *looks.under_way] == slow.looked


def test_without_a_thread_the_looks_fail_and_later_ones_do_not(
    looks: Looks[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        done = looks.run(["a", "b"], lambda: DEADLINE, LONG)
        assert [(each.key, str(each.error)) for each in done] == [
            (key, "no thread is left to look at it: can't start new thread") for key in "ab"
        ]
    assert [each.value for each in looks.run(["a", "b"], lambda: DEADLINE, LONG)] == ["A", "B"]


def test_however_many_looks_hang_there_is_a_bound_of_threads(
    looks: Looks[str], slow: Slow, new_threads: Callable[[], int]
) -> None:
    slow.hanging = {str(number): threading.Event() for number in range(MOST_UNDER_WAY + 10)}
    done = looks.run(slow.hanging, lambda: 0.02, LONG)
    assert new_threads() == len(looks.under_way) == MOST_UNDER_WAY
    assert len(done) == 10 and all(isinstance(each.error, NoThreadLeft) for each in done)
    for event in slow.hanging.values():
        event.set()
    eventually(lambda: not looks.under_way)
    assert {each.value for each in looks.run(["a"], lambda: DEADLINE, LONG)} >= {"A"}
