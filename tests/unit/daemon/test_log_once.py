# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging

import pytest

from tests.unit.clock import Clock
from vmqos.daemon import log_once
from vmqos.daemon.log_once import BURST, REFILL, LogOnce

LOG = logging.getLogger(__name__)
DAY = 24 * 60 * 60


@pytest.fixture
def once(clock: Clock, caplog: pytest.LogCaptureFixture) -> LogOnce:
    caplog.set_level(logging.INFO)
    return LogOnce(LOG, clock)


def test_a_line_is_logged_again_only_when_its_text_changes(once: LogOnce, caplog: pytest.LogCaptureFixture) -> None:
    for error in ("full", "full", "gone", "gone", "full"):
        once.log(logging.ERROR, "pass", "it failed: %s", error)
    assert caplog.messages == ["it failed: full", "it failed: gone", "it failed: full"]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_keys_are_told_apart(once: LogOnce, caplog: pytest.LogCaptureFixture) -> None:
    assert once.log(logging.INFO, ("look", "a"), "slow")
    assert once.log(logging.INFO, ("look", "b"), "slow")
    assert caplog.messages == ["slow", "slow"]


def test_what_was_over_is_news_again(once: LogOnce, caplog: pytest.LogCaptureFixture) -> None:
    assert not once.end("pass")
    once.log(logging.ERROR, "pass", "full")
    assert once.end("pass") and not once.end("pass")
    assert once.log(logging.ERROR, "pass", "full")
    assert caplog.messages == ["full", "full"]


def test_a_traceback_is_logged_with_the_line_and_the_line_is_the_callers(
    once: LogOnce, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        try:
            raise RuntimeError("a fault of ours")
        except RuntimeError as error:
            once.log(logging.ERROR, "pass", "a pass failed: %s", error, error=error)
    (record,) = caplog.records
    assert record.exc_info is not None and record.exc_info[0] is RuntimeError
    assert record.funcName == "test_a_traceback_is_logged_with_the_line_and_the_line_is_the_callers"


@pytest.mark.parametrize("flaps", [False, True])
def test_a_day_of_texts_that_all_differ_is_a_few_lines(
    once: LogOnce, clock: Clock, caplog: pytest.LogCaptureFixture, flaps: bool
) -> None:
    for second in range(DAY):
        clock.now += 1.0
        once.log(logging.ERROR, "pass", "thread %d can't be moved", second)
        if flaps:
            once.end("pass")
    assert len(caplog.messages) == pytest.approx(BURST + DAY / REFILL, abs=1)
    assert "earlier lines about this were left out" in caplog.messages[-1]


def test_the_memory_is_bounded(once: LogOnce) -> None:
    for number in range(2 * log_once.KEYS_MAX):
        once.log(logging.DEBUG, number, "x")
    assert len(once._told) == log_once.KEYS_MAX
    assert not once.log(logging.INFO, 2 * log_once.KEYS_MAX - 1, "x")


def test_a_message_without_arguments_is_taken_as_it_is(once: LogOnce, caplog: pytest.LogCaptureFixture) -> None:
    once.log(logging.INFO, "a", "100 % full")
    assert caplog.messages == ["100 % full"]
