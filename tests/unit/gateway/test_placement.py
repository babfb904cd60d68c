# SPDX-License-Identifier: Apache-2.0
"""The thread that tells, beside a target that takes notes; Placement itself has its tests with real servers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from oslo_config import cfg

from tests.unit.agent.serve.test_vms import snapshot
from vmqos.agent.serve import capacity
from vmqos.agent.serve.capacity import Capacity
from vmqos.agent.snapshot import Snapshot
from vmqos.allocation import Policy
from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.daemon.backoff import Backoff
from vmqos.extra_specs.resources import LLC_WAYS
from vmqos.gateway import placement
from vmqos.gateway.placement import PlacementSync, Told
from vmqos.openstack.exceptions import Unreachable
from vmqos.resctrl.bitmask import CapacityBitmask

CREDENTIALS = "auth_type = password\nauth_url = http://127.0.0.1:1/v3\nusername = vmqos\npassword = x\n"


class Notes:
    """A target."""

    def __init__(self) -> None:
        self.where, self.asks_what_is_held = "somewhere", True
        self.told: list[Capacity] = []
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def tell(self, found: Capacity) -> bool:
        self.told.append(found)
        assert self.gate.wait(10)
        if self.failure is not None:
            raise self.failure
        return len(self.told) < 2 or self.told[-2] != found


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def settles_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SETTLES", 0.01)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def make(notes: Notes) -> Iterator[Callable[..., PlacementSync]]:
    made: list[PlacementSync] = []

    def start(check_interval: float = 3600.0) -> PlacementSync:
        sync = PlacementSync(notes, check_interval, Backoff(0.01, 0.05))
        made.append(sync)
        sync.start()
        return sync

    yield start
    notes.gate.set()
    for sync in made:
        sync.stop()


def configured(tmp_path: Path, text: str) -> cfg.ConfigOpts:
    (tmp_path / "vmqos.conf").write_text(text)
    return loader.load(["--config-file", str(tmp_path / "vmqos.conf")])


def with_policy(known: Snapshot, floor: int) -> Snapshot:
    return replace(known, policy=Policy(default_ways_min=floor))


def test_what_the_first_pass_found_is_told(make: Callable[..., PlacementSync], notes: Notes) -> None:
    sync = make()
    known = snapshot()
    assert known.resctrl is not None
    sync.offer(known)
    eventually(lambda: sync.state.told)
    assert notes.told == [capacity.of(known.resctrl, known.policy, known.requests)]
    assert (sync.state.error, sync.state.changes, sync.state.failures) == ("", 1, 0)
    assert sync.state.at == pytest.approx(time.time(), abs=10)


def test_only_a_change_is_told(make: Callable[..., PlacementSync], notes: Notes) -> None:
    sync = make()
    known = snapshot()
    sync.offer(known)
    eventually(lambda: sync.state.told)
    for _ in range(3):
        # Every full audit makes values anew.
        sync.offer(snapshot())
        time.sleep(0.05)
    assert len(notes.told) == 1
    sync.offer(with_policy(known, 5))
    eventually(lambda: len(notes.told) == 2)
    assert notes.told[0].ways - notes.told[1].ways == 3


def test_what_was_told_is_looked_at_again_from_time_to_time(make: Callable[..., PlacementSync], notes: Notes) -> None:
    sync = make(check_interval=0.02)
    sync.offer(snapshot())
    eventually(lambda: len(notes.told) > 3)
    assert len(set(notes.told)) == 1
    assert sync.state.changes == 1


def test_before_the_first_pass_nothing_is_told(make: Callable[..., PlacementSync], notes: Notes) -> None:
    sync = make(check_interval=0.02)
    sync.offer(Snapshot())
    time.sleep(0.2)
    assert notes.told == [] and sync.state == Told("somewhere")


def test_a_resctrl_that_is_gone_for_long_leaves_nothing_to_promise(
    make: Callable[..., PlacementSync], notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "WITHOUT_RESCTRL", 0.3)
    sync = make()
    known = snapshot()
    sync.offer(known)
    eventually(lambda: sync.state.told)
    sync.offer(replace(known, resctrl=None))
    time.sleep(0.1)
    assert len(notes.told) == 1, "it may just be mounted anew"
    eventually(lambda: notes.told[-1] == capacity.NOTHING)
    time.sleep(0.1)
    assert len(notes.told) == 2
    sync.offer(known)
    eventually(lambda: len(notes.told) == 3)
    assert notes.told[-1] == notes.told[0]


def test_what_could_not_be_told_is_told_later_and_complained_of_once(
    make: Callable[..., PlacementSync], notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    notes.failure = Unreachable("placement", "refused")
    sync = make()
    with caplog.at_level(logging.INFO, "vmqos"):
        sync.offer(snapshot())
        eventually(lambda: sync.state.failures > 3)
        assert "Placement can't be reached: refused" in sync.state.error
        assert sync.state.told is None
        notes.failure = None
        eventually(lambda: sync.state.told)
    assert sync.state.error == ""
    complaints = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(complaints) == 1 and "refused" in complaints[0].message
    assert [record for record in caplog.records if "could be told again" in record.message]


def test_an_error_that_nobody_thought_of_does_not_end_it(
    make: Callable[..., PlacementSync], notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    notes.failure = KeyError("resource_providers")
    sync = make()
    sync.offer(snapshot())
    eventually(lambda: sync.state.failures)
    assert sync.state.error == "KeyError: 'resource_providers'"
    assert caplog.records[0].exc_info, "this one is worth a traceback"
    notes.failure = None
    eventually(lambda: sync.state.told)


def test_the_loop_is_never_kept_waiting_and_the_last_word_counts(
    make: Callable[..., PlacementSync], notes: Notes
) -> None:
    sync = make()
    notes.gate.clear()
    sync.offer(snapshot())
    eventually(lambda: notes.told)
    began = time.monotonic()
    for floor in range(2, 9):
        sync.offer(with_policy(snapshot(), floor))
    assert time.monotonic() - began < 1
    notes.gate.set()
    eventually(lambda: notes.told[-1].ways == 3)
    assert len(notes.told) == 2


def test_it_is_at_rest_between_two_tries(notes: Notes) -> None:
    notes.failure = Unreachable("placement", "refused")
    sync = PlacementSync(notes, 3600.0, Backoff(60.0, 60.0))
    sync.start()
    sync.offer(snapshot())
    eventually(lambda: sync.state.failures)
    used = time.process_time()
    sync.offer(with_policy(snapshot(), 5))
    time.sleep(0.3)
    assert time.process_time() - used < 0.2
    assert len(notes.told) == 1
    sync.stop()


def test_without_credentials_nobody_is_told_and_no_thread_runs(tmp_path: Path) -> None:
    sync = PlacementSync.of(configured(tmp_path, "[placement]\nregion_name = RegionOne\n"), lambda: "node-1")
    threads = threading.active_count()
    sync.start()
    sync.offer(snapshot())
    assert threading.active_count() == threads
    assert sync.state == Told()
    sync.stop()


def test_credentials_and_a_file_at_once_are_refused_with_the_reason(tmp_path: Path) -> None:
    conf = configured(tmp_path, f"[placement]\n{CREDENTIALS}provider_yaml = /etc/nova/provider_config/vmqos.yaml\n")
    with pytest.raises(ConfigurationError, match=r"provider_yaml = /etc/nova/.*counted twice"):
        PlacementSync.of(conf, lambda: "node-1")


def test_the_file_is_written_and_the_log_asks_for_a_restart_of_nova_compute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "provider.yaml"
    conf = configured(tmp_path, f"[placement]\nprovider_yaml = {path}\ncheck_interval = 1\n")
    sync = PlacementSync.of(conf, lambda: "node-1")
    sync.start()
    sync.offer(snapshot())
    eventually(lambda: sync.state.told)
    assert sync.state.where == str(path)
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    assert provider["identification"] == {"uuid": "$COMPUTE_NODE"}
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert str(path) in warning and "restart nova-compute" in warning
    sync.stop()


def test_the_file_lets_one_server_have_as_many_ways_as_the_largest_running_vm_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "provider.yaml"
    sync = PlacementSync.of(configured(tmp_path, f"[placement]\nprovider_yaml = {path}\n"), lambda: "node-1")
    sync.start()
    known = snapshot()
    # Ways that are reserved since: the VM with 4 ways runs, and no other one can have as many.
    lowered = replace(known, policy=Policy(reserved_ways=CapacityBitmask(0x7E0)))
    assert known.resctrl is not None and capacity.of(known.resctrl, lowered.policy, known.requests).longest == 3
    sync.offer(lowered)
    eventually(lambda: sync.state.told)
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    found = {name: value for one in provider["inventories"]["additional"] for name, value in one.items()}
    assert found[LLC_WAYS]["max_unit"] == 4
    sync.stop()


def test_a_file_that_can_not_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "provider.yaml"
    sync = PlacementSync.of(configured(tmp_path, f"[placement]\nprovider_yaml = {path}\n"), lambda: "node-1")
    sync.start()
    sync.offer(snapshot())
    eventually(lambda: sync.state.error)
    assert "nowhere" in sync.state.error
    sync.stop()


def test_a_placement_that_is_away_is_an_error_that_says_so(tmp_path: Path) -> None:
    sync = PlacementSync.of(configured(tmp_path, f"[placement]\n{CREDENTIALS}"), lambda: "node-1")
    sync.start()
    sync.offer(snapshot())
    eventually(lambda: sync.state.error)
    assert "Placement can't be reached" in sync.state.error
    assert "127.0.0.1" in sync.state.error
    sync.stop()


def test_a_password_is_never_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf: Any = configured(tmp_path, f"[placement]\n{CREDENTIALS.replace('= x', '= hush-hush')}")
    sync = PlacementSync.of(conf, lambda: "node-1")
    with caplog.at_level(logging.DEBUG):
        sync.start()
        sync.offer(snapshot())
        eventually(lambda: sync.state.error)
        sync.stop()
    assert "hush-hush" not in caplog.text + sync.state.error
