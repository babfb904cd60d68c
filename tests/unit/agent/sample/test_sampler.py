# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.agent.serve.test_counters import as_told
from tests.unit.eventually import eventually
from tests.unit.telemetry.tree import ONE, Tree, open_files
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.sample.hardware_counts import HardwareCounts, VmCounts
from vmqos.agent.sample.history import EXECUTED, PACKAGES, SERIES
from vmqos.agent.sample.sampler import PATIENCE, Telemetry, of_packages
from vmqos.agent.serve import counters
from vmqos.agent.vm_record import VmRecord
from vmqos.conf import loader
from vmqos.hypervisor.model import Process, VirtualMachine
from vmqos.resctrl import exceptions
from vmqos.resctrl.mount import Mount
from vmqos.telemetry import Missing, Rates, Reading, Snapshot, Sweeper
from vmqos.telemetry.exceptions import SweepTakesLong

LONG_AGO = 3600.0


def told(telemetry: Telemetry) -> SimpleNamespace:
    """What is told of the last minute."""
    return SimpleNamespace(**as_told(counters.history(telemetry.past(60.0), telemetry.interval)))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Plain files that are taken for a mounted resctrl until ``root / unmounted`` is there."""
    made = Tree(tmp_path)

    def find(path: str, **_: object) -> Mount:
        if (tmp_path / "unmounted").exists():
            raise exceptions.NotMounted(path=path, mend="mount it")
        return Mount(path, frozenset(), False, True)

    monkeypatch.setattr("vmqos.resctrl.mount.find", find)
    return made


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each sweep began; those of several threads never at the same time."""
    began: list[float] = []
    sweeping = threading.Lock()
    real = Sweeper.sweep

    def sweep(sweeper: Sweeper) -> Snapshot:
        assert sweeping.acquire(blocking=False), "two sweeps at a time"
        try:
            began.append(time.monotonic())
            return real(sweeper)
        finally:
            sweeping.release()

    monkeypatch.setattr(Sweeper, "sweep", sweep)
    return began


Make = Callable[..., Telemetry]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a sweep however long this machine has no CPU for it; see :func:`hanging` for those that hang."""
    monkeypatch.setattr("vmqos.agent.sample.sampler.PATIENCE", 60.0)


@pytest.fixture
def make(tree: Tree) -> Iterator[Make]:
    made: list[Telemetry] = []

    def make(interval: float, history: float = 600.0, keep_open: bool = True, fresh_for: float = 0.0) -> Telemetry:
        made.append(Telemetry(str(tree.root), interval, history, keep_open))
        made[-1].fresh_for = fresh_for
        made[-1].start()
        return made[-1]

    yield make
    for telemetry in made:
        telemetry.stop()


@dataclass
class Hanging:
    """Sweeps that do not end until they may.

    :ivar may_end: set it to let them go on.
    :ivar hangs: while it is set, sweeps hang.
    """

    may_end: threading.Event
    hangs: threading.Event


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    """Sweeps hang from the moment on that a test says so. The functional tests have a resctrl that really hangs."""
    made = Hanging(threading.Event(), threading.Event())
    monkeypatch.setattr("vmqos.agent.sample.sampler.PATIENCE", PATIENCE)
    real = Sweeper.sweep

    def sweep(sweeper: Sweeper) -> Snapshot:
        if made.hangs.is_set():
            made.may_end.wait(20)
        return real(sweeper)

    monkeypatch.setattr(Sweeper, "sweep", sweep)
    yield made
    made.may_end.set()


def test_one_sweep_serves_all_who_ask_at_the_same_time(make: Make, sweeps: list[float]) -> None:
    telemetry = make(0.0, fresh_for=LONG_AGO)
    found: list[Snapshot] = []
    threads = [threading.Thread(target=lambda: found.append(telemetry.newest())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(sweeps) == len(set(map(id, found))) == 1


def test_a_sweep_that_is_not_fresh_any_more_is_made_anew(make: Make, sweeps: list[float]) -> None:
    telemetry = make(0.0)
    first, second = telemetry.newest(), telemetry.newest()
    assert len(sweeps) == 2
    assert first is not second
    assert telemetry.swept_at == second.monotonic


@pytest.mark.parametrize(("interval", "fresh_for"), [(0.0, 1.0), (0.5, 1.0), (2.0, 3.0), (60.0, 5.0)])
def test_regular_sweeps_are_fresh_enough_unless_they_are_rare(interval: float, fresh_for: float) -> None:
    assert Telemetry("/nowhere", interval, 0.0).fresh_for == fresh_for


def test_between_rare_sweeps_who_asks_gets_a_new_one_and_the_regular_ones_stay_what_they_are(
    make: Make, sweeps: list[float]
) -> None:
    telemetry = make(3600.0)
    regular, _ = telemetry.sampled()
    assert telemetry.newest() is not regular
    assert telemetry.sampled()[0] is regular
    assert len(told(telemetry).times) == 1
    assert len(sweeps) == 2


def test_a_sweep_that_hangs_holds_nobody_up_for_long(make: Make, hanging: Hanging) -> None:
    telemetry = make(0.0)
    last = telemetry.newest()
    hanging.hangs.set()
    began = time.monotonic()
    assert telemetry.newest() is last
    assert PATIENCE <= time.monotonic() - began < PATIENCE + 10
    assert telemetry.swept_at == last.monotonic
    began = time.monotonic()
    assert [telemetry.newest() for _ in range(20)] == 20 * [last], "only the first one waits"
    assert telemetry.sampled()[0] is last
    assert told(telemetry).times == []
    assert time.monotonic() - began < 15
    hanging.may_end.set()
    eventually(lambda: telemetry.newest() is not last)


def test_a_first_sweep_that_hangs_is_an_error_with_its_time(make: Make, hanging: Hanging) -> None:
    hanging.hangs.set()
    telemetry = make(0.02)
    for ask in (telemetry.newest, telemetry.sampled):
        with pytest.raises(SweepTakesLong, match=r"has taken [1-9]\d* s so far"):
            ask()


@pytest.mark.parametrize("interval", [0.0, 0.02])
def test_a_sweep_that_hangs_makes_the_counters_old(
    make: Make, hanging: Hanging, monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    monkeypatch.setattr("vmqos.agent.sample.sampler.OLD_AFTER", 0.3)
    monkeypatch.setattr("vmqos.agent.sample.sampler.PATIENCE", 0.1)
    telemetry = make(interval)
    telemetry.newest()
    eventually(lambda: not telemetry.is_old)
    hanging.hangs.set()
    telemetry.newest()
    eventually(lambda: telemetry.is_old)
    hanging.may_end.set()
    eventually(lambda: not telemetry.is_old)


def test_without_regular_sweeps_nothing_is_old_because_nobody_asked(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.sample.sampler.OLD_AFTER", 0.05)
    telemetry = make(0.0)
    telemetry.newest()
    time.sleep(0.2)
    assert not telemetry.is_old


def test_a_sweep_that_failed_does_not_make_the_one_before_it_younger(
    make: Make, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry = make(0.0)
    last = telemetry.newest()
    (tree.root / "unmounted").touch()
    monkeypatch.setattr("vmqos.telemetry.sweep.sweeper._identity", lambda root: "another")
    with pytest.raises(exceptions.NotMounted):
        telemetry.newest()
    assert telemetry.swept_at == last.monotonic


def test_regular_looks_tell_bandwidths_and_are_remembered(make: Make, tree: Tree) -> None:
    group = tree.vm(ONE, llc_occupancy=4096)
    telemetry = make(0.02)
    eventually(lambda: ONE in telemetry.sampled()[0].vms)
    tree.set(group, "mbm_total_bytes", 10**9)
    eventually(lambda: any(told(telemetry).vms[ONE]["total"]))
    past = told(telemetry)
    assert past.vms[ONE]["llc_occupancy"][-1] == 8192
    assert past.vms[ONE]["total"][0] is None, "the first reading has none before it"
    assert len(past.times) == len(past.vms[ONE]["total"])


def test_regular_looks_are_remembered_by_the_minute(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmqos.agent.sample.minutes.MINUTE", 1)
    tree.vm(ONE, llc_occupancy=4096)
    telemetry = Telemetry(str(tree.root), 0.02, 600.0, minutes=10)
    telemetry.start()
    try:
        eventually(lambda: ONE in telemetry.minutes.copy().vms)
    finally:
        telemetry.stop()
    past = telemetry.minutes.copy()
    assert past.vms[ONE].rows[past.series.index("llc_occupancy")] == 8192


def test_neighbours_are_judged_by_misses_of_the_l3_alone(tree: Tree) -> None:
    tree.vm(ONE, llc_occupancy=4096)
    executed = {ONE: VmCounts(0.0, (1, 1, 1, 1), (4e9, 5e9, 7e6, 3e6), 1.0)}
    for of_the_l3 in (True, False):
        telemetry = Telemetry(str(tree.root), 0.02, 600.0, executed=lambda: executed, of_the_l3=of_the_l3)
        telemetry.start()
        try:
            eventually(lambda past=telemetry: bool(past.past(60.0).vms.get(ONE)))  # type: ignore[misc]
            eventually(lambda recent=telemetry.recent: ONE in recent.columns()[0].vms)  # type: ignore[misc]
        finally:
            telemetry.stop()
        assert told(telemetry).vms[ONE]["cache_misses"][0] == 3_000_000
        assert ("cache_misses" in telemetry.recent.columns()[0].vms[ONE]) is of_the_l3


def test_neighbours_are_judged_by_what_a_vms_run_of_now_did(tree: Tree) -> None:
    def known(process: Process) -> dict[str, VmRecord]:
        return {ONE: VmRecord(ObservedVm(VirtualMachine(ONE, ONE, 1, process, None, False, None), frozenset()))}

    tree.vm(ONE, llc_occupancy=4096)
    vms = known(Process(7, 100))
    telemetry = Telemetry(str(tree.root), 0.02, 600.0, vms=lambda: vms)
    telemetry.start()
    try:
        eventually(lambda: ONE in telemetry.recent.columns()[0].vms)
    finally:
        telemetry.stop()
    vms = known(Process(8, 900))
    assert ONE not in telemetry.recent.columns()[0].vms


def test_what_tasks_execute_is_remembered_beside_the_counters_and_of_vms_without_a_group_alone(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.sample.minutes.MINUTE", 1)
    tree.vm(ONE, llc_occupancy=4096)
    executed = {
        ONE: VmCounts(0.0, (1, 1, 1, 1), (4e9, 5e9, 7e6, 3e6), 0.25),
        "ungrouped": VmCounts(0.0, (1, 1, 1, 1), (2e9, 1e9, 0.0, 0.0), 1.0),
    }
    telemetry = Telemetry(str(tree.root), 0.02, 600.0, minutes=10, executed=lambda: executed)
    telemetry.start()
    try:
        eventually(lambda: {ONE, "ungrouped"} <= telemetry.minutes.copy().vms.keys())
        del executed[ONE]
        eventually(lambda: told(telemetry).vms[ONE]["instructions"][-1] is None)
    finally:
        telemetry.stop()
    past, minutes = told(telemetry).vms, telemetry.minutes.copy()
    assert (past[ONE]["llc_occupancy"][0], past[ONE]["instructions_per_cycle"][0]) == (8192, 1.25)
    assert past[ONE]["cache_misses"][0] == 3_000_000
    assert past[ONE]["counters_share"][0] == 0.25, "others had the counters, too: these figures are estimates"
    assert (past["ungrouped"]["llc_occupancy"][0], past["ungrouped"]["instructions"][0]) == (None, 1_000_000_000)
    assert minutes.vms[ONE].rows[minutes.series.index("instructions_per_cycle")] == 1.25


def test_what_packages_count_is_remembered_from_the_first_look_on_that_finds_them(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.sample.minutes.MINUTE", 1)
    (tmp_path / "counting").mkdir()
    counting = Tree(tmp_path / "counting", packages=(0, 1))
    group = counting.vm(ONE, llc_occupancy=4096)
    counting.set_package(group, "core_energy", "1.5")
    counting.set_package(group, "unhalted_core_cycles", 1000)
    executed = {
        ONE: VmCounts(0.0, (1, 1, 1, 1), (4e9, 5e9, 7e6, 3e6), 0.25),
        "ungrouped": VmCounts(0.0, (1, 1, 1, 1), (2e9, 1e9, 0.0, 0.0), 1.0),
    }
    telemetry = Telemetry(str(counting.root), 0.02, 600.0, minutes=10, executed=lambda: executed)
    telemetry.start()
    try:
        eventually(lambda: ONE in telemetry.sampled()[0].vms)
        joules = itertools.count(1_000_001, 1_000_000)

        def is_told() -> bool:
            # A look may fall between the beginning of a write and its end, and find nothing.
            counting.set_package(group, "core_energy", f"{next(joules)}.5")
            return any(told(telemetry).vms[ONE]["core_watts"])

        eventually(is_told)
        eventually(lambda: {ONE, "ungrouped"} <= telemetry.minutes.copy().vms.keys())
    finally:
        telemetry.stop()
    past, minutes = told(telemetry).vms, telemetry.minutes.copy()
    assert tuple(past[ONE]) == minutes.series == SERIES + EXECUTED + PACKAGES
    assert max(filter(None, past[ONE]["core_watts"])) > 1e6, "a million joules of each of two packages"
    assert set(past[ONE]["uops_per_cycle"]) == {None}, "these packages count no micro-operations"
    assert past[ONE]["instructions_per_cycle"][-1] == 1.25
    assert set(past["ungrouped"]["core_watts"]) == {None}


def packages(**values: float | None) -> Rates:
    unknown = Reading.none(Missing.NO_PREVIOUS)
    found = {event: unknown if value is None else Reading(value) for event, value in values.items()}
    return Rates(unknown, unknown, unknown, 1.0, found)


def test_of_what_packages_count_the_power_is_remembered_and_shares_of_the_cycles() -> None:
    every = {"uops_retired": 3e9, "stalls_llc_hit": 1e8, "stalls_llc_miss": 5e8}
    assert of_packages(packages(core_energy=3.5, unhalted_core_cycles=2e9, **every)) == (3.5, 1.5, 0.05, 0.25)
    assert of_packages(packages(core_energy=0.0, unhalted_core_cycles=0.0, **every)) == (0.0, None, None, None)
    assert of_packages(packages(core_energy=None, unhalted_core_cycles=None)) == (None, None, None, None)
    assert of_packages(packages()) == (None, None, None, None)


@pytest.mark.parametrize(
    ("text", "may_count", "series"),
    [("", True, SERIES + EXECUTED), ("", False, SERIES), ("hardware_events = false", True, SERIES)],
)
def test_it_takes_no_memory_for_what_the_agent_may_not_count(
    text: str, may_count: bool, series: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.telemetry.hardware_events.may_count", lambda: may_count)
    path = tmp_path / "vmqos.conf"
    path.write_text(f"[telemetry]\n{text}\n")
    conf = loader.load(["--config-file", str(path)])
    telemetry = Telemetry.of(conf, hardware=HardwareCounts.of(conf, dict, lambda longest: None))
    assert telemetry.minutes.copy().series == series


def test_the_interval_is_kept(make: Make, sweeps: list[float]) -> None:
    make(0.2)
    eventually(lambda: len(sweeps) >= 4)
    assert sweeps[3] - sweeps[0] > 0.55


def test_without_regular_looks_bandwidths_are_those_since_somebody_asked_before(make: Make, tree: Tree) -> None:
    group = tree.vm(ONE)
    telemetry = make(0.0)
    assert telemetry.sampled()[1][ONE].total == Reading(None, Missing.NO_PREVIOUS)
    tree.set(group, "mbm_total_bytes", 10**9)
    rate = telemetry.sampled()[1][ONE].total.value
    assert rate is not None and rate > 0
    assert told(telemetry).times == []


def test_nothing_is_kept_open_without_regular_looks_nor_where_that_is_switched_off(make: Make, tree: Tree) -> None:
    for telemetry in (make(0.0), make(60.0, keep_open=False)):
        telemetry.newest()
        # The first regular look may be under way now: it has a file open only while it reads it.
        eventually(lambda: open_files(tree.root) == [])


def test_stop_closes_every_file(make: Make, tree: Tree) -> None:
    telemetry = make(0.02)
    eventually(lambda: bool(open_files(tree.root)))
    telemetry.stop()
    assert open_files(tree.root) == []


def test_a_resctrl_that_is_gone_is_told_once_and_found_again(
    make: Make, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tree.root / "unmounted").touch()
    telemetry = make(0.02)
    eventually(lambda: "counters can't be read" in caplog.text)
    with pytest.raises(exceptions.NotMounted):
        telemetry.sampled()
    with pytest.raises(exceptions.NotMounted):
        telemetry.newest()
    time.sleep(0.1)
    assert caplog.text.count("counters can't be read") == 1
    (tree.root / "unmounted").unlink()
    eventually(lambda: "counters can be read again" in caplog.text)
    eventually(lambda: telemetry.sampled()[0].host.rmids == 192)


def test_what_nobody_thought_of_does_not_end_the_regular_looks(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def sweep(sweeper: Sweeper) -> Snapshot:
        calls.append(sweeper)
        raise RuntimeError("boom")

    monkeypatch.setattr(Sweeper, "sweep", sweep)
    telemetry = make(0.02)
    eventually(lambda: len(calls) > 2)
    with pytest.raises(exceptions.ResctrlError, match="boom"):
        telemetry.sampled()


def test_files_are_let_go_between_two_looks_that_are_far_apart(
    make: Make, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.sample.sampler.LET_GO_INTERVAL", 0.02)
    make(3600.0)
    eventually(lambda: bool(open_files(tree.root)))
    monkeypatch.setattr("vmqos.telemetry.sweep.sweeper._identity", lambda root: "another")
    eventually(lambda: not open_files(tree.root))


def test_the_configuration_has_the_last_word(tree: Tree) -> None:
    path = tree.root / "vmqos.conf"
    path.write_text(f"[resctrl]\npath = {tree.root}\n[telemetry]\ninterval = 5\n")
    telemetry = Telemetry.of(loader.load(["--config-file", str(path)]))
    assert (telemetry.interval, telemetry.minutes.capacity) == (5.0, 1440)
    telemetry.start()
    assert telemetry.newest().host.rmids == 192
    telemetry.stop()


def test_a_vm_that_waits_for_counters_keeps_its_last_bandwidth_until_it_has_a_new_one(tree: Tree) -> None:
    group, asked = tree.vm(ONE, mbm_total_bytes=1000, mbm_local_bytes=500), list[bool]()
    telemetry = Telemetry(str(tree.root), 0.02, 0.0, take_turns=asked.append)
    telemetry.start()
    try:
        eventually(lambda: telemetry.sampled()[1][ONE].total.value is not None)
        assert telemetry.measured() == {}
        assert set(asked) == {False}
        at = telemetry.sampled()[0].monotonic
        for event in ("mbm_total_bytes", "mbm_local_bytes"):
            tree.set(group, event, "Unassigned")
        eventually(lambda: True in asked and ONE in telemetry.measured())
        last = telemetry.measured()[ONE]
        assert last.rates.total == Reading(0.0) and last.at >= at
        sweeps = len(asked)
        eventually(lambda: len(asked) > sweeps + 2)
        assert telemetry.measured()[ONE] is last
        assert telemetry.sampled()[1][ONE].total == Reading(None, Missing.UNASSIGNED)
        for event in ("mbm_total_bytes", "mbm_local_bytes"):
            tree.set(group, event, 3)
        eventually(lambda: telemetry.sampled()[1][ONE].total.value is not None)
        assert telemetry.measured() == {}
    finally:
        telemetry.stop()


def test_turns_that_fail_do_not_end_the_sweeps(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    def fail(is_waiting: bool) -> None:
        raise RuntimeError("no turn")

    telemetry = Telemetry(str(tree.root), 0.02, 0.0, take_turns=fail)
    telemetry.start()
    try:
        first, _ = telemetry.sampled()
        eventually(lambda: telemetry.sampled()[0] is not first)
    finally:
        telemetry.stop()
    assert "no turn" in caplog.text
