# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.telemetry.tree import ONE, Tree, open_files
from vmqos.agent.telemetry import Telemetry
from vmqos.conf import loader
from vmqos.resctrl import exceptions
from vmqos.resctrl.mount import Mount
from vmqos.telemetry import Missing, Reading, Snapshot, Sweeper

LONG_AGO = 3600.0


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


@pytest.fixture
def make(tree: Tree) -> Iterator[Make]:
    made: list[Telemetry] = []

    def make(interval: float, history: float = 600.0, keep_open: bool = True) -> Telemetry:
        made.append(Telemetry(str(tree.root), interval, history, keep_open))
        return made[-1]

    yield make
    for telemetry in made:
        telemetry.stop()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_sweep_serves_all_who_ask_at_the_same_time(make: Make, sweeps: list[float]) -> None:
    telemetry = make(0.0)
    found: list[Snapshot] = []
    threads = [threading.Thread(target=lambda: found.append(telemetry.newest(LONG_AGO))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(sweeps) == len(set(map(id, found))) == 1


def test_who_wants_a_fresh_one_gets_it(make: Make, sweeps: list[float]) -> None:
    telemetry = make(0.0)
    telemetry.newest(LONG_AGO)
    telemetry.newest(0.0)
    assert len(sweeps) == 2


def test_regular_looks_tell_bandwidths_and_are_remembered(make: Make, tree: Tree) -> None:
    group = tree.vm(ONE, llc_occupancy=4096)
    telemetry = make(0.02)
    telemetry.start()
    eventually(lambda: ONE in telemetry.sampled(LONG_AGO)[0].vms)
    tree.set(group, "mbm_total_bytes", 10**9)
    eventually(lambda: any(telemetry.past(60.0).vms[ONE]["total"]))
    past = telemetry.past(60.0)
    assert past.vms[ONE]["llc_occupancy"][-1] == 8192
    assert past.vms[ONE]["total"][0] is None, "the first reading has none before it"
    assert len(past.times) == len(past.vms[ONE]["total"])


def test_the_interval_is_kept(make: Make, sweeps: list[float]) -> None:
    telemetry = make(0.2)
    telemetry.start()
    eventually(lambda: len(sweeps) >= 4)
    assert sweeps[3] - sweeps[0] > 0.55


def test_without_regular_looks_bandwidths_are_those_since_somebody_asked_before(make: Make, tree: Tree) -> None:
    group = tree.vm(ONE)
    telemetry = make(0.0)
    telemetry.start()
    assert telemetry.sampled(0.0)[1][ONE].total == Reading(None, Missing.NO_PREVIOUS)
    tree.set(group, "mbm_total_bytes", 10**9)
    rate = telemetry.sampled(0.0)[1][ONE].total.value
    assert rate is not None and rate > 0
    assert telemetry.past(60.0).times == []


def test_nothing_is_kept_open_without_regular_looks_nor_where_that_is_switched_off(make: Make, tree: Tree) -> None:
    for telemetry in (make(0.0), make(60.0, keep_open=False)):
        telemetry.newest(0.0)
        assert open_files(tree.root) == []


def test_stop_closes_every_file(make: Make, tree: Tree) -> None:
    telemetry = make(0.02)
    telemetry.start()
    eventually(lambda: bool(open_files(tree.root)))
    telemetry.stop()
    assert open_files(tree.root) == []


def test_a_resctrl_that_is_gone_is_told_once_and_found_again(
    make: Make, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tree.root / "unmounted").touch()
    telemetry = make(0.02)
    telemetry.start()
    eventually(lambda: "counters can't be read" in caplog.text)
    with pytest.raises(exceptions.NotMounted):
        telemetry.sampled(LONG_AGO)
    with pytest.raises(exceptions.NotMounted):
        telemetry.newest(LONG_AGO)
    time.sleep(0.1)
    assert caplog.text.count("counters can't be read") == 1
    (tree.root / "unmounted").unlink()
    eventually(lambda: "counters can be read again" in caplog.text)
    eventually(lambda: telemetry.sampled(LONG_AGO)[0].host.rmids == 192)


def test_what_nobody_thought_of_does_not_end_the_regular_looks(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def sweep(sweeper: Sweeper) -> Snapshot:
        calls.append(sweeper)
        raise RuntimeError("boom")

    monkeypatch.setattr(Sweeper, "sweep", sweep)
    telemetry = make(0.02)
    telemetry.start()
    eventually(lambda: len(calls) > 2)
    with pytest.raises(exceptions.ResctrlError, match="boom"):
        telemetry.sampled(LONG_AGO)


def test_files_are_let_go_between_two_looks_that_are_far_apart(
    make: Make, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmqos.agent.telemetry.LET_GO_INTERVAL", 0.02)
    telemetry = make(3600.0)
    telemetry.start()
    eventually(lambda: bool(open_files(tree.root)))
    monkeypatch.setattr("vmqos.telemetry.sweep._identity", lambda root: "another")
    eventually(lambda: not open_files(tree.root))


def test_the_configuration_has_the_last_word(tree: Tree) -> None:
    path = tree.root / "vmqos.conf"
    path.write_text(f"[resctrl]\npath = {tree.root}\n[telemetry]\ninterval = 5\n")
    telemetry = Telemetry.of(loader.load(["--config-file", str(path)]))
    assert telemetry.interval == 5.0
    assert telemetry.newest(0.0).host.rmids == 192
    telemetry.stop()
