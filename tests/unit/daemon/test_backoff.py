# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.unit.clock import Clock
from vmqos.daemon.backoff import Backoff, Failure
from vmqos.reason import Code, Reason

REFUSED, AGAIN = Reason(Code.REFUSED, "refused"), Reason(Code.REFUSED, "refused again")


@pytest.fixture
def backoff(clock: Clock) -> Backoff:
    return Backoff(1.0, 10.0, clock)


def test_each_failure_doubles_the_delay_up_to_the_limit(backoff: Backoff) -> None:
    delays = []
    for _ in range(6):
        backoff.fail("vm", REFUSED)
        failure = backoff.get("vm")
        assert failure is not None
        delays.append(failure.delay)
    assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_what_is_known_to_be_over_soon_is_tried_as_often(backoff: Backoff) -> None:
    for _ in range(4):
        backoff.fail("vm", REFUSED, at_most=1.5)
    failure = backoff.get("vm")
    assert failure is not None and failure.delay == 1.5


def test_a_key_waits_until_its_time_has_come(backoff: Backoff, clock: Clock) -> None:
    backoff.fail("vm", REFUSED)
    assert backoff.waits("vm") and not backoff.is_due("vm") and not backoff.due() and backoff.waiting() == {"vm"}
    failure = backoff.get("vm")
    assert failure is not None and backoff.seconds_until(failure) == backoff.next_due() == 1.0
    clock.now += 1.0
    assert not backoff.waits("vm") and backoff.is_due("vm") and backoff.due() == {"vm"} and not backoff.waiting()
    assert not backoff.is_due("another"), "it has not failed"
    assert backoff.seconds_until(failure) == 0.0


def test_success_starts_over(backoff: Backoff) -> None:
    backoff.fail("vm", REFUSED)
    backoff.fail("vm", REFUSED)
    backoff.succeed("vm")
    assert backoff.get("vm") is None and backoff.next_due() is None
    backoff.fail("vm", AGAIN)
    failure = backoff.get("vm")
    assert failure is not None and failure.delay == 1.0 and failure.reason is AGAIN


def test_keys_that_are_gone_are_forgotten(backoff: Backoff) -> None:
    backoff.fail("gone", REFUSED)
    backoff.fail(("monitoring", "here"), REFUSED)
    backoff.keep_only({("monitoring", "here")})
    assert backoff.get("gone") is None
    assert backoff.get(("monitoring", "here")) is not None


def test_another_thread_may_note_failures_while_they_are_looked_at(backoff: Backoff) -> None:
    class Meddling(Failure):
        """A failure during whose look the other thread gets its turn."""

        @property
        def due(self) -> float:  # type: ignore[override]
            backoff.fail(("another", len(backoff._failures)), REFUSED)
            return 1.0

    for read in (backoff.due, backoff.waiting, backoff.next_due):
        backoff._failures = {"a": object.__new__(Meddling), "b": object.__new__(Meddling)}
        read()
        assert len(backoff._failures) > 2
