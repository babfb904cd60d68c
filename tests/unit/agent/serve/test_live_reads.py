# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from vmqos.agent.serve import live_reads
from vmqos.agent.serve.live_reads import LiveReads, ReadTakesLong


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveReads]:
    """Reads that are waited for however long this machine has no CPU for them."""
    monkeypatch.setattr(live_reads, "PATIENCE", 60.0)
    made = LiveReads()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def impatient(reads: LiveReads, monkeypatch: pytest.MonkeyPatch) -> LiveReads:
    """For reads that hang."""
    monkeypatch.setattr(live_reads, "PATIENCE", 0.5)
    return reads


def read_when_it_goes_on(reads: LiveReads, answer: str) -> str:
    """What is read once the read that hung has ended."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return reads.read(lambda: answer)
        except ReadTakesLong:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_read_is_carried_out_by_the_one_thread_that_may_hang(reads: LiveReads) -> None:
    names = [reads.read(lambda: threading.current_thread().name) for _ in range(3)]
    assert names == 3 * ["live-reads"]


def test_an_error_goes_to_the_one_who_asked(reads: LiveReads) -> None:
    with pytest.raises(KeyError, match="nowhere"):
        reads.read(lambda: {}["nowhere"])
    assert reads.read(lambda: 1) == 1


def test_who_asks_while_a_read_hangs_is_refused_at_once_and_never_read_for(impatient: LiveReads) -> None:
    reads = impatient
    may_end = threading.Event()
    began = time.monotonic()
    with pytest.raises(ReadTakesLong, match="has taken"):
        reads.read(lambda: may_end.wait(20))
    assert 0.5 <= time.monotonic() - began < 20
    began, carried_out = time.monotonic(), list[int]()
    for number in range(100):
        with pytest.raises(ReadTakesLong):
            reads.read(lambda number=number: carried_out.append(number))  # type: ignore[misc]
    assert time.monotonic() - began < 25, "only the first one waits: each of them would wait for half a second"
    may_end.set()
    assert read_when_it_goes_on(reads, "well") == "well"
    assert carried_out == []


def test_all_who_wait_for_a_read_that_hangs_give_up_at_the_same_time(impatient: LiveReads) -> None:
    reads = impatient
    may_end = threading.Event()
    refused: list[float] = []

    def ask() -> None:
        with pytest.raises(ReadTakesLong):
            reads.read(lambda: may_end.wait(20))
        refused.append(time.monotonic())

    began = time.monotonic()
    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    may_end.set()
    assert len(refused) == 50
    assert max(refused) - began < 15, "one after the other they would take 25 seconds"


def test_reads_that_take_their_time_are_waited_for_one_by_one(reads: LiveReads) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda number=number: found.append(reads.read(lambda: time.sleep(0.1) or number)))  # type: ignore[misc]
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2]


def test_without_a_thread_nothing_is_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_reads, "PATIENCE", 0.1)
    with pytest.raises(ReadTakesLong):
        LiveReads().read(lambda: 1)


def test_a_read_that_ends_as_soon_as_a_host_that_stood_still_goes_on_is_told(
    impatient: LiveReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reads, "LAST_MOMENT", 60.0)
    # As if everything had stood still from the beginning of the read, and for longer than it may take.
    assert impatient.read(lambda: time.sleep(0.6) or "well") == "well"
