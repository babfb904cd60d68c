# SPDX-License-Identifier: Apache-2.0
"""The model in a guest: what a kernel reads and writes is what the model counts and obeys."""

from __future__ import annotations

import itertools
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.resctrl_client.mounted import retry
from tests.kernel import limbo
from tests.kernel.cachemodel import switch, walkers
from tests.kernel.cachemodel.counts import LINE, Served
from tests.kernel.pytest_guest import GuestMachine, MountResctrl, Run
from vmqos.resctrl.filesystem import Filesystem

everywhere = pytest.mark.guest(machines=("cascade-lake", "sapphire-rapids", "milan"), kernels="6.12")
UNIT = 65536
"""Bytes of one unit of a counter in these machines."""

L3_CYCLES, MEMORY_CYCLES = 80, 360
"""What a line takes (``tests/kernel/plugin/pmu.h``)."""

MIB = 1 << 20
L2 = 64 << 10
"""A small L2, so that the L3 sees nearly all of what a walker does."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return walkers.build(tmp_path_factory.mktemp("walker"))


@pytest.fixture
def root(mount_resctrl: MountResctrl) -> Iterator[Path]:
    """resctrl, mounted so that it tells RMIDs; the model is off at the end."""
    mounted = mount_resctrl("debug")
    with limbo.that_ends(Filesystem(str(mounted))):
        try:
            yield mounted
        finally:
            switch.turn_off()


@pytest.fixture
def on_first_cpu() -> Iterator[None]:
    """This process runs on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    yield
    os.sched_setaffinity(0, before)


def make(group: Path, schemata: str = "") -> Path:
    """A group; RMIDs of earlier tests may be in limbo for a while."""
    retry(group.mkdir, OSError)
    if schemata:
        (group / "schemata").write_text(f"{schemata}\n")
    return group


def counter(group: Path, name: str, domain: int = 0) -> int:
    return int((group / f"mon_data/mon_L3_{domain:02}/{name}").read_text())


def size_of_a_way(machine: GuestMachine) -> int:
    """Bytes: the sets are a whole number of pages' lines."""
    plugin = machine.machine.plugin
    return plugin.get("l3size", 16 * MIB) // machine.ways // 4096 * 4096


@pytest.mark.guest(machines=("cascade-lake", "milan"))
def test_the_kernels_counters_are_the_models(root: Path, guest_machine: GuestMachine, program: Path) -> None:
    group = make(root / "a")
    rmid = switch.rmid_of(group)
    last = guest_machine.machine.cpus - 1
    with walkers.walker(program, 4 * MIB, 0, group) as walker, switch.on(l2size=L2):
        before = switch.counts(0, rmid), counter(group, "mbm_total_bytes"), counter(group, "mbm_local_bytes")
        stored = {}
        for order in ("random 100000", "stream 70000", "store 70000", "stream 20000"):
            stores = switch.counts(0, rmid).store
            walker.do(order)
            stored[order] = switch.counts(0, rmid).store - stores
            held = switch.counts(0, rmid).occupancy
            assert counter(group, "llc_occupancy") == pytest.approx(held, abs=2 * UNIT)
            assert counter(group, "llc_occupancy", guest_machine.machine.sockets - 1) == 0
            assert switch.counts(last, rmid).data.total == 0
        counted = switch.counts(0, rmid) - before[0]
        total = counter(group, "mbm_total_bytes") - before[1]
        local = counter(group, "mbm_local_bytes") - before[2]
    # All of the walker's memory was brought in, and once.
    assert counted.data.memory * LINE == pytest.approx(4 * MIB, rel=0.1), counted
    beyond_l2 = {order: stores.l3 + stores.memory for order, stores in stored.items()}
    # The kernel stores, too, while the walker walks, and the more the slower the guest is: as much when it only loads.
    assert beyond_l2["store 70000"] - beyond_l2["stream 70000"] == pytest.approx(70_000, rel=0.1), stored
    assert counted.occupancy > 3.9 * MIB, counted
    assert total == pytest.approx(counted.memory_bytes, abs=2 * UNIT)
    # Each is read at a moment of its own, and in units.
    assert local == pytest.approx(total, abs=UNIT)


@pytest.mark.long
@everywhere
def test_random_accesses_miss_as_the_closed_form_says(root: Path, guest_machine: GuestMachine, program: Path) -> None:
    way = size_of_a_way(guest_machine)
    working_set = 6 * 2 * MIB
    group = make(root / "a")
    found, steps = {}, 500_000
    rmid = switch.rmid_of(group)
    with walkers.walker(program, working_set, 0, group) as walker, switch.on(l2size=L2):
        for ways in (1, 2, 4):
            (group / "schemata").write_text(f"L3:0={(1 << ways) - 1:x}\n")
            (root / "schemata").write_text(f"L3:0={(1 << guest_machine.ways) - (1 << ways):x}\n")
            switch.empty()
            walker.do("stream 200000")
            before = switch.counts(0, rmid)
            walker.do(f"random {steps}")
            counts = switch.counts(0, rmid) - before
            # Of the walker's steps: the kernel's own accesses, more the slower the guest is, nearly all hit.
            found[ways] = counts.data.memory / steps
            held = switch.held_by_way(0, rmid, guest_machine.ways)
            assert sum(held[ways:]) == 0, held
            assert counts.occupancy <= ways * way
    assert found == pytest.approx({ways: 1 - ways * way / working_set for ways in found}, abs=0.04)


@pytest.mark.guest(machines=("cascade-lake", "sapphire-rapids"), kernels="6.12")
def test_a_mask_protects_from_a_neighbour(root: Path, guest_machine: GuestMachine, program: Path) -> None:
    """A stream on another CPU of the same cache takes everything from who shares the ways, and nothing else.

    They take turns, so that it does not matter how fast each of them is. What misses is counted of the walker's steps:
    the kernel's own accesses, which nearly all hit, are the more the slower the guest is.
    """
    missed, turns, steps = {}, 3, 40_000
    half = guest_machine.ways // 2
    mine = (1 << half) - 1
    group, noise = make(root / "a"), make(root / "b")
    rmid = switch.rmid_of(group)
    with (
        walkers.walker(program, 4 * MIB, 0, group) as walker,
        walkers.walker(program, 48 * MIB, 1, noise) as stream,
        switch.on(l2size=L2),
    ):
        for protected in (False, True):
            if protected:
                for other in (root, noise):
                    (other / "schemata").write_text(f"L3:0={(1 << guest_machine.ways) - 1 & ~mine:x}\n")
                (group / "schemata").write_text(f"L3:0={mine:x}\n")
                # What the walker has in ways that are the others' now is hit there until they take it.
                switch.empty()
            walker.do("stream 200000")
            before = switch.counts(0, rmid)
            for _ in range(turns):
                stream.do("stream 400000")
                walker.do(f"random {steps}")
            missed[protected] = (switch.counts(0, rmid) - before).data.memory / (turns * steps)
    assert missed[False] > 0.5, missed
    assert missed[True] < 0.1, missed


@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_with_cdp_code_and_data_are_in_ways_of_their_own(mount_resctrl: MountResctrl, program: Path) -> None:
    root = mount_resctrl("debug,cdp")
    group = make(root / "a", "L3CODE:0=3")
    (group / "schemata").write_text("L3DATA:0=30\n")
    rmid = switch.rmid_of(group)
    # Without samples: a small program's code is some hundred lines.
    # Nothing is counted before the model is on, and the walker may still be on its way to sleep when it is.
    before = switch.counts(0, rmid)
    with walkers.walker(program, 2 * MIB, 0, group) as walker, switch.on(l2size=L2, sample=0):
        walker.do("stream 100000")
        held = switch.held_by_way(0, rmid, 11)
        counts = switch.counts(0, rmid) - before
    assert counts.fetch.memory > 0
    assert counts.data.memory > 20_000
    assert [way for way in range(11) if held[way]] == [0, 1, 4, 5], held
    assert held[0] + held[1] <= counts.fetch.memory * LINE
    assert held[4] + held[5] > MIB


@pytest.mark.long
@pytest.mark.guest(machines="sapphire-rapids", kernels="6.12")
def test_ways_of_an_l2_are_obeyed(root: Path, program: Path) -> None:
    group = make(root / "a")
    missed = {}
    rmid, accesses = switch.rmid_of(group), 200_000
    with walkers.walker(program, MIB, 0, group) as walker, switch.on(l2size=2 * MIB):
        for mask in (0xFFFF, 0x1):
            (group / "schemata").write_text(f"L2:0={mask:x}\n")
            switch.empty()
            walker.do("stream 40000")
            before = switch.counts(0, rmid)
            walker.do(f"random {accesses}")
            load = (switch.counts(0, rmid) - before).load
            # Of the walker's own: those of interrupts, which count for it, too, hit, and may be as many.
            missed[mask] = (load.l3 + load.memory) / accesses
    assert missed[0xFFFF] < 0.05, missed
    # One way of sixteen holds 128 KiB of the 1 MiB.
    assert missed[0x1] == pytest.approx(0.875, abs=0.08), missed


@pytest.mark.long
@pytest.mark.guest(machines=("cascade-lake", "milan"), kernels="6.12")
def test_a_class_gets_no_more_lines_a_second_than_its_bandwidth(
    root: Path, guest_machine: GuestMachine, program: Path
) -> None:
    amd = guest_machine.name == "milan"
    group = make(root / "a", "MB:0=2" if amd else "MB:0=20")
    # Less than the slowest guest can get.
    rate = 2_000_000
    rmid = switch.rmid_of(group)
    with (
        walkers.walker(program, 48 * MIB, 0, group) as walker,
        switch.on(l2size=L2, bandwidth=10_000_000, mba_unit=1_000_000),
    ):
        begin, before = time.monotonic(), switch.counts(0, rmid)
        walker.do(f"stream {3 * rate // LINE}")
        counts, end = switch.counts(0, rmid) - before, time.monotonic()
    assert counts.memory_bytes > 2 * rate, counts
    assert counts.data.memory * LINE / (end - begin) < rate * 1.05, (counts, end - begin)
    assert counts.waited_ns > 0, counts


@pytest.mark.long
@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_a_cpu_stands_still_for_lines_from_memory(root: Path, program: Path) -> None:
    group = make(root / "a")
    seconds = {}
    rmid = switch.rmid_of(group)
    with walkers.walker(program, 48 * MIB, 0, group) as walker:
        for cost in (0, 30_000):
            with switch.on(l2size=L2, memory_ns=cost):
                begin, before = time.monotonic(), switch.counts(0, rmid)
                walker.do("stream 100000")
                counts, seconds[cost] = switch.counts(0, rmid) - before, time.monotonic() - begin
            lines = counts.data.memory + counts.fetch.memory
            assert lines >= 90_000, counts
            assert counts.waited_ns == pytest.approx(lines * cost, rel=0.05, abs=1_000_000), counts
    assert seconds[30_000] > 0.95 * 90_000 * 30e-6, seconds


@pytest.mark.long
@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
@pytest.mark.usefixtures("on_first_cpu")
def test_a_program_stands_still_once_it_has_had_its_cycles(root: Path, program: Path) -> None:
    group = make(root / "a")
    rmid = switch.rmid_of(group)

    def cycles() -> int:
        counts = switch.counts(0, rmid)
        lines = counts.data + counts.fetch
        return counts.instructions + L3_CYCLES * lines.l3 + MEMORY_CYCLES * lines.memory

    with walkers.walker(program, 48 * MIB, 1, group) as walker, switch.on(l2size=L2):
        lines, most = 400_000, cycles() + 20_000_000
        switch.stand_still_after(0, rmid, most)
        walker.begin(f"stream {lines}")
        retry(lambda: _at_least(cycles(), most), AssertionError)
        since = time.monotonic()
        time.sleep(1)
        stood, seconds = cycles() - most, time.monotonic() - since
        switch.stand_still_after(0, rmid, 0)
        walker.finish()
        went_on = cycles() - most
    # The kernel's own work goes on, which is the more the longer it is watched.
    assert stood < 10_000_000 * max(1.0, seconds), (stood, seconds)
    assert went_on > 0.9 * MEMORY_CYCLES * lines - 20_000_000, went_on


def _at_least(found: int, wanted: int) -> None:
    assert found >= wanted, (found, wanted)


@pytest.mark.long
@pytest.mark.guest(machines="broadwell", kernels="6.12")
@pytest.mark.usefixtures("on_first_cpu")
def test_what_is_locked_into_a_cache_stays_there(root: Path, program: Path) -> None:
    """The kernel locks by emptying the caches and reading a region in a class that nobody is in afterwards."""
    noise, locked = make(root / "b"), root / "locked"
    with walkers.walker(program, 48 * MIB, 1, noise) as stream, switch.on(l2size=L2):
        for group in (root, noise):
            (group / "schemata").write_text("L3:0=ffffc\n")
        make(locked)
        try:
            (locked / "mode").write_text("pseudo-locksetup\n")
            (locked / "schemata").write_text("L3:0=3\n")
            assert (locked / "mode").read_text() == "pseudo-locked\n"
            size = int((locked / "size").read_text().partition("0=")[2].partition(";")[0])
            # What is mapped are whole pages, and no more than there is.
            size = size // mmap.PAGESIZE * mmap.PAGESIZE
            with Path("/dev/pseudo_lock/locked").open("r+b", buffering=0) as device:
                regions = {"locked": mmap.mmap(device.fileno(), size), "plain": mmap.mmap(-1, size)}
            served = {name: _read_twice(region, stream) for name, region in regions.items()}
            for region in regions.values():
                region.close()
        finally:
            locked.rmdir()
    lines = size // LINE
    assert served["locked"].l3 > 0.9 * lines, served
    assert served["locked"].memory < 0.1 * lines, served
    assert served["plain"].memory > 0.9 * lines, served


def _read_twice(region: mmap.mmap, stream: walkers.Walker) -> Served:
    """From where the lines of a region come the second time, after a stream has passed by."""
    region[::LINE]
    stream.do("stream 700000")
    before = switch.counts(0, 0)
    region[::LINE]
    return (switch.counts(0, 0) - before).load


@pytest.mark.long
@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_counters_go_on_when_the_model_comes_and_goes(root: Path, program: Path) -> None:
    group = make(root / "a")
    with walkers.walker(program, 4 * MIB, 0, group) as walker:
        seen = [counter(group, "mbm_total_bytes")]
        for turn in (switch.turn_on, switch.turn_off, switch.turn_on, switch.empty, switch.turn_off):
            turn()
            walker.do("stream 100000")
            seen.append(counter(group, "mbm_total_bytes"))
        assert not switch.is_on()
    assert seen == sorted(seen), seen
    # Made up it is 8 bytes an instruction; modelled, hardly more than what is brought in the first time.
    grown = [after - before for before, after in itertools.pairwise(seen)]
    assert grown[1] > 2 * MIB, grown
    assert grown[4] > 2 * MIB, grown


@pytest.mark.long
@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_turning_it_on_and_off_under_load_loses_nothing(root: Path, program: Path) -> None:
    groups = [make(root / name) for name in "ab"]
    with (
        walkers.walker(program, 4 * MIB, 0, groups[0]) as walker,
        walkers.walker(program, 32 * MIB, 3, groups[1]) as stream,
    ):
        stream.begin("endless")
        for turn in range(12):
            (switch.turn_on, switch.empty, switch.turn_off)[turn % 3]()
            walker.do("random 5000")
    assert not switch.is_on()


@pytest.mark.long
@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_a_knob_out_of_range_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="sample=6 is out of range"), switch.on(sample=6):
        pass
    assert switch.knob("sample") == 3


@pytest.mark.long
@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_a_shell_can_turn_it_on_and_see_what_is_counted(root: Path) -> None:
    group = make(root / "a")
    (group / "tasks").write_text(str(os.getpid()))
    with switch.on():
        _shell("off")
        assert not switch.is_on()
        _shell("on", "l3_ns=1")
        assert (switch.is_on(), switch.knob("l3_ns")) == (True, 1)
        _shell("on", "l3_ns=0")
        rows = [line.split() for line in _shell("show").splitlines()]
    (root / "tasks").write_text(str(os.getpid()))
    (row,) = (row for row in rows if row[:2] == ["a", "0"])
    assert int(row[2]) == switch.rmid_of(group)
    assert int(row[3]) > 10_000


def _shell(*arguments: str) -> str:
    command = ("taskset", "-c", "0", sys.executable, "-m", "tests.kernel.cachemodel", *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_was_counted_is_in_a_file(guest: Run) -> None:
    script = """
        python3 -c '
from tests.kernel.cachemodel import switch
assert switch.is_on()
switch.snapshot()
switch.turn_off()
'
    """
    found = guest.run("milan", "6.12", script, plugin={"cache": 1, "sample": 4}).cache
    assert {snapshot.why for snapshot in found} == {"asked", "off", "end"}
    assert {snapshot.domain for snapshot in found} == {0, 1, 2, 3}
    asked, off, end = ([one for one in found if one.why == why and one.domain == 0] for why in ("asked", "off", "end"))
    assert asked[0].time < off[0].time < end[0].time
    assert asked[0].counts.instructions > 1_000_000
    assert asked[0].counts.occupancy > MIB
    assert asked[0].counts.load.l2 % 16 == 0
    # Off, nothing is counted any more, and nothing held.
    assert end[0].counts - off[0].counts == end[0].counts - end[0].counts
    assert end[0].counts.occupancy == 0


@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_it_is_told_who_evicted_whom_and_what_fewer_ways_would_miss(
    root: Path, guest_machine: GuestMachine, program: Path
) -> None:
    group, noise = make(root / "a"), make(root / "b")
    mine, other = switch.rmid_of(group), switch.rmid_of(noise)
    rmids = int((root / "info/L3_MON/num_rmids").read_text())
    working_set, ways, steps = 12 * MIB, guest_machine.ways, 200_000
    with (
        walkers.walker(program, working_set, 0, group) as walker,
        walkers.walker(program, 48 * MIB, 1, noise) as stream,
    ):
        begin = switch.counts(0, mine)
        with switch.on(l2size=L2, evictions=1, curves=rmids):
            walker.do("stream 200000")
            before, curve_before = switch.counts(0, mine), switch.curve(0, mine, ways)
            walker.do(f"random {steps}")
            curve = switch.curve(0, mine, ways) - curve_before
            reached = switch.counts(0, mine) - before
            stream.do("stream 400000")
            counts = switch.counts(0, mine)
            lost = {by: switch.evicted(0, by=by, of=mine, rmids=rmids) for by in range(rmids)}
    filled = counts - begin
    assert max(lost, key=lambda by: lost[by] if by != mine else 0) == other, lost
    assert sum(lost.values()) == pytest.approx(
        filled.data.memory + filled.fetch.memory - counts.occupancy // LINE, rel=0.02, abs=200
    )
    assert curve.accesses == pytest.approx(
        reached.data.l3 + reached.data.memory + reached.fetch.l3 + reached.fetch.memory, rel=0.02
    )
    closed = {few: 1 - few * size_of_a_way(guest_machine) / working_set for few in (1, 4, 7)}
    # Of the walker's steps: the kernel's own accesses, more the slower the guest is, nearly all hit in one way.
    assert {few: curve.misses(few) / steps for few in closed} == pytest.approx(closed, abs=0.04)


@pytest.mark.long
@pytest.mark.guest(machines="cascade-lake", kernels="6.12")
def test_streams_share_a_channel_to_memory(root: Path, program: Path) -> None:
    # Less than the slowest guest can get.
    rate, groups = 2_000_000, [make(root / name) for name in "ab"]
    rmids = [switch.rmid_of(group) for group in groups]
    with (
        walkers.walker(program, 48 * MIB, 0, groups[0]) as one,
        walkers.walker(program, 48 * MIB, 1, groups[1]) as other,
        switch.on(l2size=L2, channel=rate),
    ):
        begin, before = time.monotonic(), switch.counts(0, rmids[0])
        one.do(f"stream {2 * rate // LINE}")
        alone, seconds = switch.counts(0, rmids[0]) - before, time.monotonic() - begin
        assert alone.memory_bytes < rate * seconds * 1.05, (alone, seconds)
        other.begin("endless")
        begins = [switch.counts(0, rmid) for rmid in rmids]
        begin = time.monotonic()
        one.do(f"stream {2 * rate // LINE}")
        together = [switch.counts(0, rmid) - before for rmid, before in zip(rmids, begins, strict=True)]
        seconds = time.monotonic() - begin
    moved = [counts.memory_bytes for counts in together]
    still = [counts.waited_ns / 1e9 for counts in together]
    print(f"alone {alone.memory_bytes} bytes; together {moved} in {seconds:.1f} s, {still} s of them at the channel")
    assert sum(moved) < rate * seconds * 1.1, (moved, seconds)
    # Half each, where both are at the channel all the time; who is emulated more slowly is there less, and gets less.
    law = [rate * still[n] / (1 + still[1 - n] / seconds) for n in range(2)]
    assert moved == pytest.approx(law, rel=0.15), (still, seconds)
    assert min(still) > 0.25 * seconds, (still, seconds)
