# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ceilometer_pollster import watch
from ceilometer_pollster.watch import Watch
from tests.unit.ceilometer_pollster.sweeps import GOLD, Instance, snapshot, vm
from vmqos.resctrl.exceptions import NotMounted
from vmqos.telemetry import Missing, Snapshot


class Sweeps:
    """Stands for the sweeper: hands out what it was given, or raises it."""

    def __init__(self, *outcomes: Snapshot | Exception) -> None:
        self.outcomes = list(outcomes)
        self.made = 0

    def sweep(self) -> Snapshot:
        self.made += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch):
    def make(*outcomes: Snapshot | Exception) -> tuple[Watch, Sweeps]:
        sweeps = Sweeps(*outcomes)
        monkeypatch.setattr(watch, "Sweeper", lambda root, keep_open: sweeps)
        return Watch("/r"), sweeps

    return make


def test_all_meters_of_a_cycle_share_one_sweep_and_the_next_cycle_makes_its_own(of) -> None:
    first, second = snapshot([vm(GOLD)]), snapshot([vm(GOLD)])
    watched, sweeps = of(first, second)
    cache: dict[str, object] = {}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: watched.snapshot(cache, [Instance(GOLD)]), range(8)))
    assert all(one is first for one in found)
    assert sweeps.made == 1
    assert watched.snapshot({}, []) is second


def test_a_sweep_that_fails_is_not_tried_again_within_the_cycle_and_is_told_once(of, caplog) -> None:
    caplog.set_level(logging.INFO)
    gone = NotMounted(path="/r", mend="mount it")
    watched, sweeps = of(gone, gone, snapshot([]))
    cache: dict[str, object] = {}
    assert [watched.snapshot(cache, []) for _ in range(3)] == [None] * 3
    assert sweeps.made == 1
    assert watched.snapshot({}, []) is None
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "mount it" in caplog.text

    assert watched.snapshot({}, []) is not None
    assert caplog.messages[1:] == ["resctrl can be read again"]


def test_an_instance_without_samples_is_told_of_once_not_each_cycle(of, caplog) -> None:
    blind = {"llc_occupancy": Missing.UNAVAILABLE}
    watched, _ = of(*(snapshot([vm(GOLD, missing=blind)]) for _ in range(3)))
    for _ in range(3):
        watched.snapshot({}, [Instance(GOLD)])
    (told,) = caplog.messages
    assert GOLD in told
    assert "llc_occupancy" in told


def test_a_text_with_a_percent_sign_is_told_as_it_is(of, caplog) -> None:
    watched, _ = of(snapshot([]))
    watched.snapshot({}, [Instance("100%s")])
    assert "100%s" in caplog.text


def test_each_service_has_a_watch_of_its_own_for_as_long_as_it_lives(tmp_path: Path) -> None:
    class Manager:
        pass

    one, other = Manager(), Manager()
    assert watch.of_service(one, str(tmp_path)) is watch.of_service(one, str(tmp_path))
    assert watch.of_service(one, str(tmp_path)) is not watch.of_service(other, str(tmp_path))
    del one, other
    gc.collect()
    assert not any(isinstance(manager, Manager) for manager in watch.of_service._made)
