# SPDX-License-Identifier: Apache-2.0
"""The machine without a guest: its caches are the plugin's, and its time and its channel are as its docstring says."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.kernel.cachemodel import recorded
from tests.kernel.cachemodel.counts import LINE
from tests.kernel.cachemodel.library import From, Geometry
from tests.kernel.cachemodel.reference import Reference
from tests.worth.native import Load, Machine, Order

MIB = 1 << 20
LOADS: tuple[Load | list[Load], ...] = (
    Load(Order.ZIPF, MIB, stores=0.2),
    Load(Order.ENDLESS, overlap=8, stores=0.3),
    [Load(Order.RANDOM, 300 << 10, item=256, seconds=0.0004), Load(Order.IDLE, seconds=0.0002)],
    Load(Order.SEQUENTIAL, 200 << 10),
    Load(Order.SHUFFLED, MIB // 2),
)
"""All there are."""


def test_the_reference_agrees_on_each_access_and_each_eviction(tmp_path: Path) -> None:
    """While tasks move and masks change; the reference knows nothing of tasks, clocks and chance."""
    trace = tmp_path / "trace"
    sizes = Geometry(l2_sets=64, l2_ways=4, l3_sets=576, l3_ways=11)
    reference = Reference(sizes)
    with Machine(
        cpus=4,
        sockets=2,
        l3_bytes=576 * 11 * LINE,
        l3_ways=11,
        l2_bytes=64 * 4 * LINE,
        l2_ways=4,
        evictions=True,
        trace=trace,
        bytes_per_cycle=4.0,
    ) as machine:
        tasks = [machine.start(load, cpu=n % 4, rmid=n, closid=n) for n, load in enumerate(LOADS)]
        for step in range(20):
            machine.run(0.003)
            machine.set_ways(1, 0x7FF >> step // 2)
            machine.set_ways(2, 0x2AA if step % 2 else 0)
            machine.assign(tasks[step % 4], cpu=step % 3)
        counters = {(n, socket): machine.counters(n, socket=socket) for n in range(5) for socket in range(2)}
        evicted = {socket: machine.evicted(socket=socket) for socket in range(2)}
    seen: Counter[tuple[int, int, From]] = Counter()
    for number, record in enumerate(recorded.read(trace)):
        access = record.access
        (expected,) = reference.run([access])
        assert record.served is expected, (number, record)
        seen[access.rmid, access.domain, expected] += 1
    assert sum(seen.values()) > 100_000
    for (rmid, socket), found in counters.items():
        assert found.llc_misses == seen[rmid, socket, From.MEMORY]
        assert found.llc_references == found.llc_misses + seen[rmid, socket, From.L3]
        assert found.occupancy == reference.occupancy(rmid, socket)
        assert found.writebacks == reference.writebacks[socket, rmid]
        assert found.total_bytes == LINE * (found.llc_misses + found.writebacks)
    assert {
        (socket, by, of): lines for socket in evicted for (by, of), lines in evicted[socket].items()
    } == reference.evicted


def test_the_trace_of_a_machine_has_its_own_accesses_alone(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with Machine(cpus=1, trace=trace) as machine, Machine(cpus=1) as other:
        for one, rmid in ((machine, 1), (other, 2)):
            one.start(Load(Order.ENDLESS), cpu=0, rmid=rmid)
            one.run(0.001)
    with Machine(cpus=1) as machine:
        machine.start(Load(Order.ENDLESS), cpu=0, rmid=3)
        machine.run(0.001)
    assert {record.access.rmid for record in recorded.read(trace)} == {1}


def test_an_rmid_has_lost_what_it_brought_in_and_holds_no_more() -> None:
    with Machine(cpus=5, evictions=True, l3_bytes=MIB, l3_ways=8, sample=1) as machine:
        for n, load in enumerate(LOADS):
            machine.start(load, cpu=n, rmid=n, closid=n)
        machine.run(0.2)
        evicted = machine.evicted()
        for rmid in range(5):
            counters = machine.counters(rmid)
            lost = sum(lines for (_, of), lines in evicted.items() if of == rmid)
            assert lost == counters.llc_misses - counters.occupancy // LINE
        assert max(evicted, key=lambda pair: evicted[pair] if pair[0] != pair[1] else 0)[0] == 1


@pytest.mark.parametrize("sample", [0, 3])
def test_a_curve_says_what_a_task_misses_with_ways_of_its_own(sample: int) -> None:
    """Whatever ways it has while the curve is made, and whoever is beside it."""
    load = Load(Order.ZIPF, MIB, exponent=0.8)
    small = partial(Machine, l3_bytes=MIB // 2, l3_ways=8, l2_bytes=32 << 10, sample=sample)
    with small(cpus=2, curves=True) as machine:
        task = machine.start(load, cpu=0, rmid=1, seed=3)
        machine.start(Load(Order.ENDLESS, overlap=8), cpu=1, rmid=2, seed=4)
        machine.run(0.2)
        accesses, curve = machine.progress(task).accesses, machine.curve(1)
        assert machine.counters(1).llc_references == curve.accesses > 10_000
        assert machine.counters(1).llc_misses > curve.misses(8)
    for ways in range(9):
        with small(cpus=1) as machine:
            machine.set_ways(1, (1 << ways) - 1)
            task = machine.start(load, cpu=0, rmid=1, closid=1, seed=3)
            while machine.progress(task).accesses < accesses - 200:
                machine.run(0.00001)
            found = machine.counters(1)
            # It ends some accesses earlier or later.
            assert found.llc_misses == pytest.approx(curve.misses(ways), abs=250)


def test_the_same_machine_does_the_same_each_time() -> None:
    runs = []
    for steps in (1, 1, 10):
        with Machine(cpus=5, sample=1, evictions=True) as machine:
            for n, load in enumerate(LOADS):
                machine.start(load, cpu=n, rmid=n)
            for _ in range(steps):
                machine.run(0.05 / steps)
            runs.append(([machine.counters(n) for n in range(5)], machine.evicted()))
    assert runs[0] == runs[1]
    assert runs[2][0][1].instructions == pytest.approx(runs[0][0][1].instructions, rel=0.01)


@pytest.mark.parametrize("sample", [0, 2])
@pytest.mark.parametrize("ways", [1, 4, 8])
def test_random_accesses_miss_as_the_closed_form_says(ways: int, sample: int) -> None:
    with Machine(cpus=1, l3_bytes=MIB, l3_ways=8, l2_bytes=32 << 10, sample=sample) as machine:
        machine.set_ways(3, (1 << ways) - 1)
        machine.start(Load(Order.RANDOM, 2 * MIB), cpu=0, closid=3)
        machine.run(0.3)
        before = machine.counters(0)
        machine.run(0.3)
        found = machine.counters(0) - before
    assert found.miss_ratio == pytest.approx(1 - ways / 16, abs=0.02)
    assert found.occupancy == ways * MIB // 8


def test_a_cycle_is_an_instruction_or_part_of_a_line() -> None:
    with Machine(cpus=1, l3_cycles=80, memory_cycles=360) as machine:
        machine.start(Load(Order.ENDLESS, instructions=10), cpu=0, rmid=1)
        machine.run(1.0)
        found = machine.counters(1)
        assert found.cycles == pytest.approx(machine.hz, rel=1e-4)
        assert found.ipc == pytest.approx(10 / 370, rel=0.001)
        assert found.instructions == 10 * found.llc_misses


@pytest.mark.parametrize(("overlap", "cycles"), [(1, 360.0), (4, 90.0), (64, 8.0)])
def test_lines_that_overlap_take_their_share_of_the_time(overlap: int, cycles: float) -> None:
    with Machine(cpus=1) as machine:
        task = machine.start(Load(Order.ENDLESS, instructions=8, overlap=overlap), cpu=0)
        machine.run(0.5)
        done = machine.progress(task)
    # Up to one access's instructions beside the lines that are underway.
    assert cycles - 1 <= done.cycles / done.accesses <= cycles + 8.5


@pytest.mark.parametrize("sample", [0, 3])
def test_two_streams_have_half_of_the_channel_each(sample: int) -> None:
    with Machine(cpus=2, bytes_per_cycle=1.0, sample=sample) as machine:
        for cpu in range(2):
            machine.start(Load(Order.ENDLESS, overlap=10), cpu=cpu, rmid=cpu + 1)
        machine.run(1.0)
        one, other = machine.counters(1), machine.counters(2)
    assert one.total_bytes == pytest.approx(machine.hz / 2, rel=0.01)
    assert other.total_bytes == pytest.approx(machine.hz / 2, rel=0.01)
    assert one.queued_cycles > 0


@pytest.mark.parametrize("overlaps", [(1,), (1, 1), (8, 8), (1, 10), (1, 4, 16)])
def test_clocks_and_queue_are_those_of_a_few_lines_of_python(overlaps: tuple[int, ...]) -> None:
    """To the cycle, for loads that miss each line."""
    instructions = [4 + 3 * cpu for cpu in range(len(overlaps))]
    with Machine(cpus=len(overlaps), bytes_per_cycle=1.0) as machine:
        for cpu, overlap in enumerate(overlaps):
            machine.start(Load(Order.ENDLESS, instructions=instructions[cpu], overlap=overlap), cpu=cpu, rmid=cpu)
        machine.run(0.05)
        found = [machine.counters(cpu) for cpu in range(len(overlaps))]
    clocks, queued = [0] * len(overlaps), [0] * len(overlaps)
    underway: list[list[int]] = [[] for _ in overlaps]
    free = 0
    while min(clocks) < 0.05 * machine.hz:
        cpu = clocks.index(min(clocks))
        now = clocks[cpu]
        free = max(free, now) + LINE
        queued[cpu] += free - LINE - now
        underway[cpu].append(free + 360)
        came = underway[cpu][-overlaps[cpu]] if len(underway[cpu]) >= overlaps[cpu] else now
        clocks[cpu] = max(now, came) + instructions[cpu]
    assert [one.cycles for one in found] == clocks
    assert [one.queued_cycles for one in found] == queued
    assert [one.llc_misses for one in found] == [len(lines) for lines in underway]


def test_who_waits_for_each_line_gets_fewer_of_them_beside_a_stream() -> None:
    took = {}
    for streams in (0, 1, 2):
        with Machine(cpus=3, bytes_per_cycle=1.0, l3_bytes=MIB) as machine:
            task = machine.start(Load(Order.SHUFFLED, 16 * MIB), cpu=0, rmid=1)
            for n in range(streams):
                machine.start(Load(Order.ENDLESS, overlap=10), cpu=1 + n, rmid=2)
            machine.run(1.0)
            done = machine.progress(task)
            took[streams] = done.cycles / done.accesses
            assert machine.counters(2).total_bytes <= machine.hz
    # The line itself, what takes 64 cycles on the channel, and what is before it there.
    assert took[0] == pytest.approx(360 + 64 + 4, abs=1)
    assert took[0] + 3 * 64 < took[1] < took[2]


def test_a_task_that_seldom_asks_for_a_line_keeps_the_channel_from_no_other() -> None:
    with Machine(cpus=2, bytes_per_cycle=8.0) as machine:
        machine.start(Load(Order.ENDLESS, instructions=2000), cpu=0, rmid=1)
        machine.start(Load(Order.ENDLESS), cpu=1, rmid=2)
        machine.run(0.1)
        found = machine.counters(2)
    # Now and then a line comes while one of the other task is on the channel.
    assert found.queued_cycles < 0.2 * found.llc_misses


def test_without_a_channel_no_line_waits() -> None:
    with Machine(cpus=2) as machine:
        tasks = [machine.start(Load(Order.ENDLESS, overlap=10), cpu=n, rmid=1) for n in range(2)]
        machine.run(0.1)
        assert machine.counters(1).queued_cycles == 0
        assert machine.progress(tasks[0]).accesses == machine.progress(tasks[1]).accesses


def test_ways_of_its_own_spare_a_task_a_stream() -> None:
    with Machine(cpus=2, l3_bytes=2 * MIB, evictions=True) as machine:
        machine.start(Load(Order.RANDOM, MIB), cpu=0, rmid=1, closid=1)
        machine.start(Load(Order.ENDLESS, overlap=16), cpu=1, rmid=2, closid=2)
        machine.run(0.5)
        shared = machine.counters(1)
        machine.set_ways(1, 0xFF00)
        machine.set_ways(2, 0x00FF)
        machine.run(0.5)
        before, lost = machine.counters(1), machine.evicted()[2, 1]
        machine.run(0.5)
        own = machine.counters(1) - before
        assert machine.evicted()[2, 1] == lost > 0
    assert own.miss_ratio < 0.01 < 0.2 < shared.miss_ratio
    assert own.ipc > 1.3 * shared.ipc


def test_a_class_gets_no_more_than_its_bandwidth() -> None:
    with Machine(cpus=2, bandwidth=100_000_000) as machine:
        machine.set_bandwidth(1, 20)
        machine.start(Load(Order.ENDLESS, overlap=10), cpu=0, rmid=1, closid=1)
        machine.start(Load(Order.ENDLESS, overlap=10), cpu=1, rmid=2, closid=2)
        machine.run(1.0)
        assert machine.counters(1).total_bytes == pytest.approx(20_000_000, rel=0.02)
        assert machine.counters(1).throttled_cycles > 0
        assert machine.counters(2).total_bytes > 100_000_000


def test_loads_take_turns_and_idle_ones_take_no_cycles() -> None:
    busy, idle = Load(Order.RANDOM, 64 << 10, seconds=0.02), Load(Order.IDLE, seconds=0.03)
    with Machine(cpus=1) as machine:
        machine.start([busy, idle], cpu=0, rmid=1)
        used = []
        for _ in range(10):
            before = machine.counters(1)
            machine.run(0.01)
            used.append((machine.counters(1) - before).cycles / machine.hz)
    assert used == pytest.approx([0.01, 0.01, 0, 0, 0] * 2, abs=0.0001)


def test_tasks_of_a_cpu_share_its_time_and_a_stopped_one_has_none() -> None:
    with Machine(cpus=1) as machine:
        tasks = [machine.start(Load(Order.RANDOM, 64 << 10), cpu=0, rmid=n) for n in range(2)]
        machine.run(0.4)
        cycles = [machine.progress(task).cycles for task in tasks]
        assert cycles == pytest.approx([0.2 * machine.hz] * 2, rel=0.03)
        machine.stop(tasks[0])
        machine.run(0.4)
        assert machine.progress(tasks[0]).cycles == cycles[0]
        assert machine.progress(tasks[1]).cycles == pytest.approx(0.6 * machine.hz, rel=0.03)


def test_a_key_value_store_asks_for_its_items_as_zipf_says(tmp_path: Path) -> None:
    trace, items = tmp_path / "trace", 1000
    with Machine(cpus=1, trace=trace) as machine:
        machine.start(Load(Order.ZIPF, items * 128, item=128, exponent=0.9), cpu=0)
        machine.run(0.02)
    lines = [record.access.line for record in recorded.read(trace)]
    assert all(second == first + 1 for first, second in zip(lines[::2], lines[1::2], strict=False))
    asked = Counter(lines[::2])
    weight = sum((n + 1) ** -0.9 for n in range(items))
    most = [count / len(lines[::2]) for _, count in asked.most_common(10)]
    assert most == pytest.approx([(n + 1) ** -0.9 / weight for n in range(10)], rel=0.15)


@pytest.mark.parametrize(
    "wrong",
    [{"cpus": 65}, {"cpus": 3, "sockets": 2}, {"sample": 6}, {"l3_ways": 33}, {"rmids": 0}, {"bytes_per_cycle": 0.0}],
)
def test_a_machine_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Machine(**wrong)  # type: ignore[arg-type]


def test_what_there_is_not_is_refused() -> None:
    with Machine(cpus=1) as machine:
        task = machine.start(Load(Order.IDLE), cpu=0)
        for wrong in (
            lambda: machine.start(Load(Order.IDLE), cpu=1),
            lambda: machine.assign(task, rmid=32),
            lambda: machine.set_ways(16, 1),
            lambda: machine.set_ways(1, 1 << 16),
            lambda: machine.counters(0, socket=1),
            lambda: machine.start([Load(Order.IDLE), Load(Order.IDLE)], cpu=0),
            lambda: Load(Order.RANDOM, size=32),
        ):
            with pytest.raises(ValueError, match=r"."):
                wrong()
