# SPDX-License-Identifier: Apache-2.0
"""What perf counts is what was done, and of whom; and :class:`HardwareEvents` hands it on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.kernel.cachemodel import switch, walkers
from tests.kernel.pmu import turns
from tests.kernel.pmu.conftest import Start
from tests.kernel.pmu.counter import (
    BRANCHES,
    EXCLUDE_KERNEL,
    EXCLUDE_USER,
    INHERIT,
    INSTRUCTIONS,
    MISSES,
    REFERENCES,
    Counter,
    counter,
)
from tests.kernel.pytest_guest import GuestMachine
from vmqos.telemetry.hardware_events import Counts, HardwareEvents

pytestmark = pytest.mark.guest(pairs=("broadwell-6.12", "broadwell-newest", "milan-shared-6.12"))

ROUNDS = 50_000_000
"""Of a loop of two instructions: some tenths of a second."""
MIB = 1 << 20
L3_CYCLES, MEMORY_CYCLES = 80, 360
"""``tests/kernel/plugin/pmu.h``."""


@pytest.fixture
def events() -> Iterator[HardwareEvents]:
    """As ``vmqos top`` has it."""
    counting = HardwareEvents()
    assert counting.unavailable == ""
    yield counting
    counting.close()


@contextmanager
def rings(tid: int) -> Iterator[tuple[Counter, Counter]]:
    """Count a task's instructions in its program and in the kernel."""
    with counter(INSTRUCTIONS, tid, EXCLUDE_KERNEL) as user, counter(INSTRUCTIONS, tid, EXCLUDE_USER) as kernel:
        yield user, kernel


def test_a_known_loop_is_counted_in_full(events: HardwareEvents, worker: Start) -> None:
    one = worker(0)
    with rings(one.process.pid) as (user, kernel):
        assert not events.read([one.process.pid])[one.process.pid].known
        before = user.read().count, kernel.read().count
        one.do(f"loop {ROUNDS}")
        found = events.read([one.process.pid])[one.process.pid]
        own, system = user.read().count - before[0], kernel.read().count - before[1]
    assert own == pytest.approx(2 * ROUNDS, rel=0.001)
    # The kernel's part, that of interrupts above all, is the larger the busier the machine is.
    assert found.instructions == pytest.approx(own + system, rel=0.01)
    assert found.cycles == pytest.approx(found.instructions, rel=0.01)
    assert found.misses == 0, "no cache is modelled"


def test_nothing_is_counted_of_a_task_that_sleeps(events: HardwareEvents, worker: Start) -> None:
    idle, busy = worker(0), worker(0)
    pids = idle.process.pid, busy.process.pid
    events.read(pids)
    busy.do(f"loop {ROUNDS}")
    found = events.read(pids)
    assert found[idle.process.pid] == Counts(0, 0, 0, 0, found[idle.process.pid].known)
    assert found[busy.process.pid].instructions > 2 * ROUNDS


def test_two_tasks_on_one_cpu_have_each_their_own_count(events: HardwareEvents, worker: Start) -> None:
    rounds = (ROUNDS, 3 * ROUNDS)
    workers = [worker(1) for _ in rounds]
    pids = [one.process.pid for one in workers]
    with ExitStack() as stack:
        counters = [stack.enter_context(rings(pid)) for pid in pids]
        events.read(pids)
        before = [[ring.read().count for ring in pair] for pair in counters]
        for one, count in zip(workers, rounds, strict=True):
            one.begin(f"loop {count}")
        for one in workers:
            one.finish()
        found = events.read(pids)
        after = [[ring.read().count for ring in pair] for pair in counters]
    for pid, count, first, last in zip(pids, rounds, before, after, strict=True):
        own, system = (now - then for now, then in zip(last, first, strict=True))
        assert own == pytest.approx(2 * count, rel=0.001)
        assert found[pid].instructions == pytest.approx(own + system, rel=0.01)


def test_a_count_follows_a_task_to_another_cpu(events: HardwareEvents, worker: Start) -> None:
    one = worker(0)
    pid = one.process.pid
    events.read([pid])
    with counter(INSTRUCTIONS, pid, EXCLUDE_KERNEL) as user:
        one.begin(f"loop {ROUNDS}")
        for turn in range(20):
            os.sched_setaffinity(pid, {1 + turn % 3})
        one.finish()
        assert user.read().count == pytest.approx(2 * ROUNDS, rel=0.001)
    found = events.read([pid])[pid]
    assert found.instructions > 2 * ROUNDS


def test_what_others_took_the_counters_for_is_made_up_for(worker: Start) -> None:
    one = worker(0)
    pid = one.process.pid
    with ExitStack() as stack:
        # The processor has counters for one of them at a time, and the kernel gives them turns.
        several = [stack.enter_context(closing(HardwareEvents())) for _ in range(turns.COUNTERS)]
        for events in several:
            events.read([pid])

        def count() -> list[Counts]:
            # There are turns every four milliseconds, and each must have had many.
            one.do(f"loop {10 * ROUNDS}")
            return [events.read([pid])[pid] for events in several]

        def judge(found: list[Counts]) -> Iterator[turns.Estimate]:
            for counts in found:
                assert counts.share is not None and 0 < counts.share < 1 / 1.5
                assert counts.cycles == pytest.approx(counts.instructions, rel=0.01)
                yield turns.Estimate(counts.instructions, counts.share)

        turns.hold(lambda: list(judge(count())), 20 * ROUNDS)


def test_threads_that_come_and_go_are_counted_from_their_beginning(events: HardwareEvents, worker: Start) -> None:
    one = worker(0)
    pid = one.process.pid
    with ExitStack() as stack:
        user, kernel = (
            stack.enter_context(counter(INSTRUCTIONS, pid, INHERIT | left_out))
            for left_out in (EXCLUDE_KERNEL, EXCLUDE_USER)
        )
        before = [user.read().count, kernel.read().count]

        def assert_done(rounds: int) -> None:
            """Since the last time: so many rounds, besides what starting a thread takes, and the kernel's part.

            That part, of interrupts above all, is the larger the busier the machine is.
            """
            found = events.read([pid])[pid].instructions
            now = [user.read().count, kernel.read().count]
            own, system = (count - then for count, then in zip(now, before, strict=True))
            before[:] = now
            assert own == pytest.approx(2 * rounds, rel=0.001, abs=ROUNDS // 500)
            assert found == pytest.approx(own + system, rel=0.01, abs=ROUNDS // 100)

        events.read([pid])
        one.do("thread")
        one.do(f"inside {ROUNDS}")
        # No one looked between its start and its work.
        assert_done(ROUNDS)
        one.do(f"inside {ROUNDS}")
        one.do("end")
        # It is gone, and what it did is not.
        assert_done(ROUNDS)
        assert_done(0)
        one.do("thread")
        one.do(f"inside {ROUNDS}")
        one.do("end")
        one.do(f"loop {ROUNDS}")
        assert_done(2 * ROUNDS)


@pytest.mark.parametrize("sample", [0, 3])
def test_cache_events_are_what_the_model_of_the_caches_counts(
    events: HardwareEvents, group: Path, guest_machine: GuestMachine, tmp_path: Path, sample: int
) -> None:
    """The model counts by RMID, which the kernel loads as it does perf's counters, when tasks change."""
    rmid = switch.rmid_of(group)
    with (
        walkers.walker(walkers.build(tmp_path), 8 * MIB, 0, group) as walker,
        switch.on(l2size=256 << 10, sample=sample),
        counter(REFERENCES, walker.process.pid) as asked,
        counter(MISSES, walker.process.pid, EXCLUDE_KERNEL) as of_program,
    ):
        pid = walker.process.pid
        # The kernel changes RMIDs at one moment and events at another, so the fewer others run the better.
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
        events.read([pid])
        before = switch.counts(0, rmid), asked.read().count, of_program.read().count
        walker.do("random 1000000")
        walker.do("store 300000")
        found = events.read([pid])[pid]
        counts = switch.counts(0, rmid) - before[0]
        references, own = asked.read().count - before[1], of_program.read().count - before[2]
    lines = counts.data + counts.fetch
    assert lines.memory > 50_000, counts
    # Linux has no event of the last level for a core of AMD's: it takes those of the L2.
    amd = guest_machine.name == "milan-shared"
    misses = lines.l3 + lines.memory if amd else lines.memory
    assert found.misses == pytest.approx(misses, rel=0.01)
    # Most of AMD's are hits of the kernel's.
    assert references == pytest.approx(lines.total if amd else lines.l3 + lines.memory, rel=0.03)
    assert found.references == pytest.approx(references, rel=0.01)
    assert 0.9 * misses < own <= found.misses
    assert found.instructions == pytest.approx(counts.instructions, rel=0.02)
    took = counts.instructions + L3_CYCLES * lines.l3 + MEMORY_CYCLES * lines.memory
    assert found.cycles == pytest.approx(took, rel=0.02)


@pytest.mark.guest(pairs=("broadwell-6.12",))
def test_events_that_the_processor_does_not_count_are_refused() -> None:
    with pytest.raises(FileNotFoundError), counter(BRANCHES, 0):
        pass
