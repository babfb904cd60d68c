# SPDX-License-Identifier: Apache-2.0
"""A generated mix of VMs in a guest: all get the same time, and the agent reads what the model counted."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pytest

from tests.worth.experiments import guest_mixes
from tests.worth.neighbours import carried, in_guest
from tests.worth.neighbours.in_guest import Both
from tests.worth.neighbours.mixes import Mix
from tests.worth.node import node

pytestmark = [
    pytest.mark.guest(machines=("milan-shared",), kernels=("6.12",)),
    pytest.mark.timeout(600),
    pytest.mark.long,
]

BEFORE, BEHIND = 5, 5
"""Seconds of the mix, on either side of the onset: enough to see what is counted, and not for a judgement."""


@dataclass(frozen=True, slots=True)
class Found:
    """One run of a mix; ``mix`` has the ways that the VMs had."""

    mix: Mix
    run: Both


@pytest.fixture(scope="module")
def found() -> Found:
    """What the tests look at."""
    key, drawn = next(guest_mixes.wanted())
    planted = drawn.planted
    assert planted is not None, key
    mix = replace(drawn, planted=replace(planted, onset=BEFORE), seconds=BEFORE + BEHIND)
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {in_guest.HOST_CPU})
    try:
        with node() as made, in_guest.host_apart(), in_guest.started(made, mix) as vms:
            return Found(vms.mix, vms.both())
    finally:
        os.sched_setaffinity(0, cpus)


def seconds_at_work(mix: Mix, vm: int) -> list[int]:
    return [second for second in range(mix.seconds) if mix.work(vm, second) != carried.IDLE]


def test_each_vm_has_the_cycles_of_its_seconds(found: Found) -> None:
    hz = found.mix.hardware.hz
    for vm, counted in enumerate(found.run.model.vms):
        at_work = seconds_at_work(found.mix, vm)
        assert at_work, vm
        spent = sum(counted[second].cycles for second in at_work) / hz
        # What it got too much in its last turns is not taken back any more.
        assert len(at_work) - 0.1 <= spent <= len(at_work) + 2, (vm, spent)


def test_a_vm_that_rests_does_next_to_nothing(found: Found) -> None:
    hz = found.mix.hardware.hz
    for vm, counted in enumerate(found.run.model.vms):
        resting = set(range(found.mix.seconds)) - set(seconds_at_work(found.mix, vm))
        assert all(counted[second].cycles < 0.2 * hz for second in resting), (vm, counted)


def test_the_agent_reads_what_the_model_counted(found: Found) -> None:
    for model, seen in zip(found.run.model.vms, found.run.seen.vms, strict=True):
        cycles, moved = sum(one.cycles for one in model), sum(one.total_bytes for one in model)
        assert sum(one.cycles for one in seen) == pytest.approx(cycles, rel=0.15)
        assert sum(one.total_bytes for one in seen) == pytest.approx(moved, rel=0.1, abs=1 << 20)
        assert seen[-1].occupancy == pytest.approx(model[-1].occupancy, rel=0.2, abs=1 << 18)


def test_the_culprit_begins_at_its_onset_and_takes_lines_of_the_others(found: Found) -> None:
    planted = found.mix.planted
    assert planted is not None
    moved = [one.total_bytes for one in found.run.seen.vms[planted.vm]]
    assert max(moved[:BEFORE]) < 0.1 * min(moved[BEFORE:])
    lost = {
        of for (by, of), lines in found.run.model.evicted.items() if by == planted.vm and of != planted.vm and lines
    }
    assert lost & set(range(len(found.mix.vms)))
