# SPDX-License-Identifier: Apache-2.0
"""A generated mix of VMs in a guest: all get the same time, and the agent reads what the model counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.worth.experiments import guest_mixes
from tests.worth.neighbours import carried, in_guest
from tests.worth.neighbours.hardware import LINE
from tests.worth.neighbours.in_guest import Both
from tests.worth.neighbours.mixes import Mix
from tests.worth.node import node

pytestmark = [
    pytest.mark.guest(machines=("milan-shared",), kernels=("6.12",)),
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

UNIT = 4096
"""Bytes of one unit of a counter (``upscale`` of the machine)."""
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
    with node() as made, in_guest.host_apart(), in_guest.started(made, mix) as vms:
        return Found(vms.mix, vms.both())


def seconds_at_work(mix: Mix, vm: int) -> list[int]:
    return [second for second in range(mix.seconds) if mix.work(vm, second) != carried.IDLE]


def test_each_vm_has_the_cycles_of_its_seconds(found: Found) -> None:
    hz = found.mix.hardware.hz
    for vm, counted in enumerate(found.run.model.vms):
        at_work = seconds_at_work(found.mix, vm)
        assert at_work, vm
        for number, second in enumerate(at_work, 1):
            spent = sum(counted[earlier].cycles for earlier in at_work[:number]) / hz
            due = sum(carried.cycles(found.mix.work(vm, earlier)) for earlier in at_work[:number])
            # What it got too much in a turn is taken off the next one.
            assert spent == pytest.approx(due, abs=0.1), (vm, second)


def test_a_vm_that_rests_does_next_to_nothing(found: Found) -> None:
    hz = found.mix.hardware.hz
    for vm, counted in enumerate(found.run.model.vms):
        resting = set(range(found.mix.seconds)) - set(seconds_at_work(found.mix, vm))
        assert all(counted[second].cycles < 0.2 * hz for second in resting), (vm, counted)


def test_the_agent_reads_what_the_model_counted(found: Found) -> None:
    """While it reads, lines of VMs are lost to the host's, and VMs' own kernel work takes some; no others."""
    for vm, readings in enumerate(found.run.readings):
        first = readings[0]
        for second, now in enumerate(readings):
            came = LINE * (now.after.llc_misses - now.before.llc_misses)
            least, most = now.after.occupancy - came - UNIT, now.before.occupancy + came
            assert least < now.seen.occupancy <= most, (vm, second, now)
            moved = now.seen.total_bytes - first.seen.total_bytes
            least = now.before.total_bytes - first.after.total_bytes - UNIT
            most = now.after.total_bytes - first.before.total_bytes + UNIT
            assert least < moved < most, (vm, second, now)


def test_the_agent_counts_the_cycles_that_the_model_counted(found: Found) -> None:
    for model, seen in zip(found.run.model.vms, found.run.seen.vms, strict=True):
        # The agent's are those of the VM's threads, and not of interrupts that come in between.
        assert sum(one.cycles for one in seen) == pytest.approx(sum(one.cycles for one in model), rel=0.15)


def test_the_culprit_begins_at_its_onset_and_takes_lines_of_the_others(found: Found) -> None:
    planted = found.mix.planted
    assert planted is not None
    moved = [one.total_bytes for one in found.run.seen.vms[planted.vm]]
    assert max(moved[:BEFORE]) < 0.1 * min(moved[BEFORE:])
    lost = {
        of for (by, of), lines in found.run.model.evicted.items() if by == planted.vm and of != planted.vm and lines
    }
    assert lost & set(range(len(found.mix.vms)))
