# SPDX-License-Identifier: Apache-2.0
"""What the agent counts of a VM is what the processor did for the RMID of the VM's group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.kernel.cachemodel import switch, walkers
from tests.kernel.cachemodel.counts import Counts
from tests.kernel.pmu import turns
from tests.kernel.pmu.conftest import Start
from tests.kernel.pytest_guest import GuestMachine
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.sample import hardware_counts
from vmqos.agent.sample.hardware_counts import HardwareCounts, VmCounts
from vmqos.agent.vm_record import VmRecord
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import VirtualMachine
from vmqos.telemetry.hardware_events import NAMES

pytestmark = pytest.mark.guest(pairs=("broadwell-6.12", "broadwell-newest", "milan-shared-6.12"))

MIB = 1 << 20
ROUNDS = 10_000_000
"""Of a loop of two instructions."""
L3_CYCLES, MEMORY_CYCLES = 80, 360
"""``tests/kernel/plugin/pmu.h``."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VM is counted however young it is: its process is what it will be. A look is waited for, however long."""
    monkeypatch.setattr(hardware_counts, "YOUNG", 0.0)
    monkeypatch.setattr(hardware_counts, "PATIENCE", 60.0)


@contextmanager
def agents_counts(pid: int) -> Iterator[HardwareCounts]:
    """The agent's counts of one VM; each question is answered by a new look."""
    vm = VirtualMachine("u", "vm", 1, processes.of_pid(pid), None, False, None)
    counts = HardwareCounts(lambda: {"u": VmRecord(ObservedVm(vm, frozenset({0})))}, 0.0)
    counts.fresh_for = -1.0
    counts.start()
    try:
        yield counts
    finally:
        counts.stop()


def told(counts: HardwareCounts) -> VmCounts:
    found = counts.newest().vms["u"]
    assert isinstance(found, VmCounts), found
    return found


def expected(counts: Counts, machine: GuestMachine) -> Mapping[str, int]:
    """What perf's events must say of what the model counted."""
    lines = counts.data + counts.fetch
    # Linux has no event of the last level for a core of AMD's: it takes those of the L2.
    amd = machine.name == "milan-shared"
    return {
        "cycles": counts.instructions + L3_CYCLES * lines.l3 + MEMORY_CYCLES * lines.memory,
        "instructions": counts.instructions,
        "cache_references": lines.total if amd else lines.l3 + lines.memory,
        "cache_misses": lines.l3 + lines.memory if amd else lines.memory,
    }


def first_in_turn(pid: int) -> None:
    """Let a process run before others: the kernel changes RMIDs at one moment and events at another."""
    os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))


def test_a_vms_sums_are_what_was_done_for_its_group(group: Path, guest_machine: GuestMachine, tmp_path: Path) -> None:
    rmid = switch.rmid_of(group)
    with (
        walkers.walker(walkers.build(tmp_path), 8 * MIB, 0, group) as walker,
        switch.on(l2size=256 << 10, sample=3),
        agents_counts(walker.process.pid) as counts,
    ):
        first_in_turn(walker.process.pid)
        assert told(counts).counts == (0, 0, 0, 0)
        before = switch.counts(0, rmid)
        walker.do("random 1000000")
        walker.do("store 300000")
        found = told(counts)
        by_model = switch.counts(0, rmid) - before
    assert found.share == 1.0
    counted, wanted = dict(zip(NAMES, found.counts, strict=True)), expected(by_model, guest_machine)
    assert counted == pytest.approx(wanted, rel=0.01), by_model


def test_threads_that_come_and_go_are_in_the_sums(group: Path, worker: Start) -> None:
    one = worker(0, group)
    first_in_turn(one.process.pid)
    rmid = switch.rmid_of(group)
    with switch.on(sample=3), agents_counts(one.process.pid) as counts:
        told(counts)
        before = switch.counts(0, rmid)
        for number in range(10):
            one.do("thread")
            one.do(f"inside {ROUNDS}")
            if number % 3 == 0:
                told(counts)
            one.do("end")
        found = told(counts)
        by_model = switch.counts(0, rmid) - before
    instructions = dict(zip(NAMES, found.counts, strict=True))["instructions"]
    assert instructions == pytest.approx(by_model.instructions, rel=0.01)
    assert instructions > 10 * 2 * ROUNDS


def test_a_share_says_that_others_took_the_counters(worker: Start) -> None:
    one = worker(0)
    with ExitStack() as stack:
        # The processor has counters for one of them at a time, and the kernel gives them turns.
        several = [stack.enter_context(agents_counts(one.process.pid)) for _ in range(turns.COUNTERS)]
        before = [_instructions(told(counts)) for counts in several]

        def count() -> list[turns.Estimate]:
            one.do(f"loop {50 * ROUNDS}")
            found = [told(counts) for counts in several]
            estimates = []
            for number, vm in enumerate(found):
                assert vm.share is not None and 0 < vm.share < 0.8
                estimates.append(turns.Estimate(_instructions(vm) - before[number], vm.share))
                before[number] = _instructions(vm)
            return estimates

        turns.hold(count, 100 * ROUNDS)


def _instructions(vm: VmCounts) -> int:
    return dict(zip(NAMES, vm.counts, strict=True))["instructions"]
