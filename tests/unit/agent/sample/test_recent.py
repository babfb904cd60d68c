# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import os
import time
from dataclasses import replace

import pytest

from tests.unit.telemetry.values import HOST, snapshot, vm
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.sample import recent as recent_module
from vmqos.agent.sample.recent import BANDWIDTH, CPU_TIME, MOST, RecentSamples, held_on
from vmqos.agent.sample.swept import swept
from vmqos.agent.vm_record import VmRecord
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.telemetry import Missing, Rates, Reading, Snapshot, VmReading

TWO = replace(HOST, caches={0: {}, 1: {}})
COUNTS = (2e9, 3e9, 5e6, 1e6)


def at(second: float, *vms: VmReading, host=TWO) -> Snapshot:
    return replace(snapshot(*vms, host=host), wall=second)


def moved(total: float | None) -> Rates:
    reading = Reading.none(Missing.UNASSIGNED) if total is None else Reading(total)
    return Rates(reading, reading, reading, 2.0)


def test_each_cache_and_each_count_is_remembered_for_itself() -> None:
    recent = RecentSamples(2.0, counted=True)
    recent.add(swept(at(100.0, vm((4096, 1, 1), (64, 1, 1))), {"u": moved(7e6)}), {"u": COUNTS})
    read, caches = recent.columns()
    assert (list(read.times), caches) == ([100.0], (0, 1))
    told = {name: list(column) for name, column in read.vms["u"].items()}
    assert math.isnan(*told.pop(CPU_TIME)), "no pass knows the VM"
    assert told == {
        BANDWIDTH: [7e6],
        "cycles": [2e9],
        "instructions": [3e9],
        "cache_references": [5e6],
        "cache_misses": [1e6],
        held_on(0): [4096],
        held_on(1): [64],
    }


def test_what_was_not_read_is_no_number() -> None:
    recent = RecentSamples(2.0, counted=True)
    recent.add(swept(at(100.0, vm((Missing.UNAVAILABLE, 1, 1))), {"u": moved(None)}), {})
    read, _ = recent.columns()
    assert all(math.isnan(value) for (value,) in read.vms["u"].values())


def test_without_hardware_events_they_take_no_memory() -> None:
    recent = RecentSamples(2.0, counted=False)
    recent.add(swept(at(100.0, vm((4096, 1, 1))), {"u": moved(1.0)}), {"u": COUNTS})
    assert set(recent.columns()[0].vms["u"]) == {BANDWIDTH, CPU_TIME, held_on(0), held_on(1)}


def test_a_vm_that_has_ended_is_forgotten_and_so_are_old_samples() -> None:
    recent = RecentSamples(2.0, counted=False)
    for second in range(MOST + 5):
        gone = (vm((1, 1, 1), uuid="gone"),) if second == 0 else ()
        recent.add(swept(at(float(second), vm((second, 1, 1)), *gone), {"u": moved(1.0), "gone": moved(1.0)}), {})
    read, _ = recent.columns()
    assert list(read.times) == [float(second) for second in range(5, MOST + 5)]
    assert set(read.vms) == {"u"}
    assert list(recent.columns(120.5)[0].times) == [121.0, 122.0, 123.0, 124.0]


def running(**processes: Process) -> dict[str, VmRecord]:
    """What a pass knows of VMs, by UUID."""
    return {
        uuid: VmRecord(ObservedVm(VirtualMachine(uuid, uuid, 1, process, None, False, None), frozenset()))
        for uuid, process in processes.items()
    }


def test_what_an_earlier_run_of_a_vm_did_is_forgotten_and_no_other_vms_samples_are() -> None:
    first, second, other = Process(7, 100), Process(8, 900), Process(9, 50)
    known = running(u=first, other=other)
    recent = RecentSamples(2.0, counted=False, vms=lambda: known)

    def sweep(second: float) -> None:
        vms = vm((second, 1, 1)), vm((second, 1, 1), uuid="other")
        recent.add(swept(at(second, *vms), {"u": moved(second), "other": moved(second)}), {})

    def held(uuid: str) -> list[float]:
        column = recent.columns()[0].vms.get(uuid, {}).get(held_on(0), [])
        return [value for value in column if not math.isnan(value)]

    sweep(1.0)
    # libvirt has ended it, and its group is still there; then the group of its next run is, of which no pass knows.
    known = running(other=other)
    sweep(3.0)
    sweep(5.0)
    assert held("u") == [1, 3, 5]
    known = running(u=second, other=other)
    assert held("u") == [], "what it did before is not told of its new run, not even until the next sweep"
    sweep(7.0)
    assert held("u") == [], "what was counted since the sweep before may be of both runs"
    sweep(9.0)
    assert held("u") == [9] and held("other") == [1, 3, 5, 7, 9]


def test_the_cpu_time_of_a_vms_process_is_told_for_each_second_since_the_sweep_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Process(7, 100), Process(8, 900)
    known, ran, now = running(u=first), {7: 5_000_000_000, 8: 1_000_000_000}, 50.0
    monkeypatch.setattr(recent_module.processes, "cpu_time_of_all", lambda pid: ran.get(pid, 0))
    monkeypatch.setattr(recent_module.time, "monotonic", lambda: now)
    recent = RecentSamples(2.0, counted=False, vms=lambda: known)

    def sweep(seconds: float, pid: int, more: float) -> float:
        nonlocal now
        now += seconds
        ran[pid] += round(more * 1e9)
        # By the wall clock, which may be set meanwhile.
        recent.add(swept(at(1000.0, vm((1, 1, 1))), {"u": moved(1.0)}), {})
        return recent.columns()[0].vms["u"][CPU_TIME][-1]

    assert math.isnan(sweep(2.0, 7, 1.0)), "there is nothing to hold it against"
    assert sweep(2.0, 7, 1.0) == 0.5
    assert sweep(4.0, 7, 14.0) == 3.5, "it has several vCPUs"
    assert sweep(2.0, 7, 0.0) == 0.0
    del ran[7]
    ran[7] = 0
    assert math.isnan(sweep(2.0, 7, 0.0)), "it has ended"
    known = running(u=second)
    recent.add(swept(at(1000.0, vm((1, 1, 1))), {"u": moved(1.0)}), {})
    assert sweep(2.0, 8, 0.4) == pytest.approx(0.2)


def test_the_cpu_time_is_the_kernels() -> None:
    mine = Process(os.getpid(), 1)
    recent = RecentSamples(2.0, counted=False, vms=lambda: running(u=mine))
    began, ran = time.monotonic(), time.process_time()
    recent.add(swept(at(1.0, vm((1, 1, 1))), {"u": moved(1.0)}), {})
    while time.process_time() < ran + 0.1:
        pass
    recent.add(swept(at(3.0, vm((1, 1, 1))), {"u": moved(1.0)}), {})
    took, cpus = time.monotonic() - began, recent.columns()[0].vms["u"][CPU_TIME][-1]
    assert 0.09 / took <= cpus <= (os.cpu_count() or 1)


def test_all_begins_anew_when_a_cache_goes_offline() -> None:
    recent = RecentSamples(2.0, counted=False)
    recent.add(swept(at(1.0, vm((1, 1, 1), (1, 1, 1))), {"u": moved(1.0)}), {})
    recent.add(swept(at(3.0, vm((1, 1, 1)), host=replace(HOST, caches={0: {}})), {"u": moved(1.0)}), {})
    read, caches = recent.columns()
    assert (list(read.times), caches) == ([3.0], (0,))


def test_without_regular_sweeps_nothing_is_remembered() -> None:
    recent = RecentSamples(0.0, counted=True)
    recent.add(swept(at(1.0, vm((1, 1, 1))), {"u": moved(1.0)}), {"u": COUNTS})
    assert recent.columns()[0].vms == {}
