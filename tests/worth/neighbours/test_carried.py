# SPDX-License-Identifier: Apache-2.0
"""What a guest carries of a drawn mix, and how its VMs are kept beside each other; the guests are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kernel.cachemodel import counts, switch
from tests.kernel.cachemodel.counts import Counts, Served
from tests.worth.experiments import guest_mixes
from tests.worth.native import Load, Order
from tests.worth.neighbours import beside, carried, in_guest, mixes
from tests.worth.neighbours.hardware import GUEST, SERVER
from tests.worth.neighbours.mixes import ALL_WAYS, Mix, Work


@pytest.fixture(scope="module")
def drawn() -> list[tuple[str, Mix]]:
    return list(guest_mixes.wanted())


def test_there_are_forty_mixes_and_each_seed_makes_the_same_one(drawn: list[tuple[str, Mix]]) -> None:
    assert len({key for key, _ in drawn}) == len(drawn) == 40
    assert sum(key.startswith("quiet") for key, _ in drawn) == 10
    for key, mix in drawn:
        took = [carried.load_of(mix, vm).instructions for vm in range(len(mix.vms))]
        assert beside.mix_of(key, [vm.mask for vm in mix.vms], took) == mix
        assert beside.mix_of(key, [3] * len(mix.vms), [9] * len(mix.vms)).vms[0].mask == 3
    assert list(guest_mixes.wanted(5)) == drawn[:5]


def test_a_guest_carries_mixes_of_few_vms_with_a_culprit_of_the_cache_or_none(drawn: list[tuple[str, Mix]]) -> None:
    for key, mix in drawn:
        assert 2 <= len(mix.vms) <= 4
        assert mix.hardware == GUEST
        assert (mix.planted is None) == key.startswith("quiet")
        if mix.planted is not None:
            assert mix.planted.meant == "cache"
            assert carried.ONSET <= mix.planted.onset <= mix.seconds - 15
            assert all(mix.work(mix.planted.vm, second, planted=False) == carried.IDLE for second in range(mix.seconds))
    odd = mixes.planted(1)
    assert odd.planted is not None and odd.planted.meant == "bandwidth" and carried.carried(odd) is None


def test_the_rom_does_what_a_vm_of_the_mix_does(drawn: list[tuple[str, Mix]]) -> None:
    for _, mix in drawn:
        for which, vm in enumerate(mix.vms):
            load = carried.load_of(mix, which)
            told = carried.rom_load(load)
            is_culprit = mix.planted is not None and mix.planted.vm == which
            assert load.stores == 0.0 and (load.overlap == 1 or is_culprit)
            assert carried.AN_ACCESS[told.walk] + carried.A_TURN * told.work == load.instructions
            assert load.order in (Order.RANDOM, Order.SHUFFLED, Order.SEQUENTIAL, Order.ENDLESS)
            assert told.size == (load.size if load.order is not Order.ENDLESS else carried.STREAM * GUEST.size)
            doing = {(work.load, work.busy) for work in (mix.work(which, second) for second in range(mix.seconds))}
            if not is_culprit:
                assert doing <= {(load, 1.0), (load, carried.PACE)}, vm
            else:
                assert doing == {(load, 1.0), (carried.IDLE.load, 1.0)}, vm


def test_sizes_grow_as_the_cache_does() -> None:
    seed, mix = next(carried.drawn("planted", 1))
    whole = mixes.planted(seed)
    for which, vm in enumerate(whole.vms):
        before, load = vm.phases[0].work.load, carried.load_of(mix, which)
        if before.order is load.order is not Order.ENDLESS and whole.planted and which != whole.planted.vm:
            assert load.size / GUEST.size == pytest.approx(before.size / SERVER.size, rel=0.01)


def test_who_would_have_several_lines_on_their_way_gets_the_time_back_that_it_waits_for_each() -> None:
    one = Work(Load(Order.RANDOM, 1 << 20, instructions=40), busy=0.5)
    assert carried.cycles(one) == 0.5
    four = Work(Load(Order.RANDOM, 1 << 20, instructions=40, overlap=4))
    # 400 cycles for a line in the guest, where it would be 130 for the drawn VM.
    assert carried.cycles(four) == pytest.approx(400 / 130)


def test_ways_of_its_own_are_a_promise_and_nobody_else_fills_them(drawn: list[tuple[str, Mix]]) -> None:
    promises = [carried.promised(mix) for _, mix in drawn]
    assert any(any(one) for one in promises) and any(not any(one) for one in promises)
    for (_, mix), ways in zip(drawn, promises, strict=True):
        for which, promised in enumerate(ways):
            others = [vm.mask for at, vm in enumerate(mix.vms) if at != which]
            if promised:
                assert mix.vms[which].mask.bit_count() == promised
                assert not any(mix.vms[which].mask & mask for mask in others)
        assert sum(ways) <= 9 or all(vm.mask == ALL_WAYS for vm in mix.vms)


def test_a_vms_cycles_are_those_of_the_machines_performance_counters() -> None:
    found = Counts(Served(9, 2, 1), Served(0, 3, 0), Served(0, 0, 1), 40, 7, 640, 0)
    counters = in_guest.of_model(found, next(carried.drawn("quiet", 1))[1])
    assert counters.cycles == 40 + 5 * 80 + 2 * 360
    assert (counters.instructions, counters.llc_references, counters.llc_misses) == (40, 7, 2)
    assert (counters.occupancy, counters.total_bytes) == (640, 64 * (1 + 1 + 7))


def test_what_the_agent_could_not_read_is_0() -> None:
    read_of = {"vms": {"u": {"caches": {"0": {"llc_occupancy": 5}}, "totals": {"mbm_total_bytes": None}}}}
    events = {"vms": {"u": {"counts": {"cycles": 9, "instructions": 3, "cache_references": None, "cache_misses": 1}}}}
    read = in_guest.of_agent(read_of, events, "u")
    assert (read.occupancy, read.total_bytes, read.cycles, read.instructions) == (5, 0, 9, 3)
    assert (read.llc_references, read.llc_misses) == (0, 1)
    assert in_guest.of_agent(read_of, {"vms": {}}, "u").cycles == 0


@dataclass
class Registers:
    """A CPU's registers, as the plugin has them. An RMID executes whenever it is looked at, unless it stands still.

    :ivar pace: instructions for each look, by RMID.
    :ivar looks: after each look, the instructions of all.
    """

    pace: list[int]
    executed: list[int] = field(default_factory=lambda: [0, 0, 0])
    most: dict[int, int] = field(default_factory=dict)
    looks: list[tuple[int, ...]] = field(default_factory=list)

    def read(self, _descriptor: int, _size: int, register: int) -> bytes:
        rmid, which = divmod(register - switch.COUNTS, counts.NUMBERS)
        if which != 3:
            return bytes(8)
        most = self.most.get(rmid, 0)
        if not most or self.executed[rmid] < most:
            self.executed[rmid] += self.pace[rmid]
        self.looks.append(tuple(self.executed))
        return self.executed[rmid].to_bytes(8, "little")

    def write(self, _descriptor: int, value: bytes, register: int) -> None:
        self.most[register - switch.MOST_CYCLES] = int.from_bytes(value, "little")


def test_who_has_had_its_cycles_stands_still_until_the_others_have_had_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    registers = Registers([0, 10, 30])
    monkeypatch.setattr("os.pread", registers.read)
    monkeypatch.setattr("os.pwrite", registers.write)
    meter = in_guest.Meter(0)
    for goal in (100, 200):
        for rmid in (1, 2):
            meter.allow(rmid, goal)
        meter.wait({1: goal, 2: goal})
        assert goal <= registers.executed[1] <= goal + 10 and goal <= registers.executed[2] <= goal + 30
        # The faster one stood still while the other one went on.
        assert any(slow < goal <= fast for _, slow, fast in registers.looks)
    meter.allow(2, 0)
    assert meter.cycles(2) > 230
    assert registers.executed[1] <= 210


def test_what_a_guest_found_is_kept_and_forgotten_when_a_law_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "KEPT", tmp_path / "build/kept.json")
    assert beside.kept() == {}
    beside.keep({"quiet 1": {"masks": [1]}})
    assert beside.kept() == {"quiet 1": {"masks": [1]}}
    monkeypatch.setattr(beside, "digest", lambda: "another")
    assert beside.kept() == {}
