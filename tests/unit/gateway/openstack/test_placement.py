# SPDX-License-Identifier: Apache-2.0
"""The thread that tells, beside a target that takes notes; Placement itself has its tests with real servers."""

from __future__ import annotations

import functools
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

from tests.unit.eventually import eventually
from vmqos.conf import loader
from vmqos.conf.exceptions import ConfigurationError
from vmqos.daemon.backoff import Backoff
from vmqos.extra_specs.resources import CMT, L3_CAT, LLC_CLASSES, LLC_WAYS
from vmqos.gateway.openstack import placement
from vmqos.gateway.openstack.capacity import NOTHING, Capacity
from vmqos.gateway.openstack.placement import PlacementSync
from vmqos.openstack import provider_yaml
from vmqos.openstack.exceptions import CloudError, HostnameUnknown, Unreachable

HOST = Capacity(ways=9, longest=9, classes=15, traits=frozenset({L3_CAT, CMT}))
LESS = replace(HOST, ways=6, longest=6)
NAME = "node-1"
SHARED = "CUSTOM_LLC_SHARED_WAYS4"

Make = Callable[..., PlacementSync]

CREDENTIALS = "auth_type = password\nauth_url = http://127.0.0.1:1/v3\nusername = vmqos\npassword = x\n"


class Notes:
    """A target."""

    def __init__(self) -> None:
        self.where, self.asks_what_is_held, self.changed_by_other = "somewhere", True, ""
        self.told: list[Capacity] = []
        self.times: list[float] = []
        self.hostnames: list[str | None] = []
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def tell(self, found: Capacity, hostname: str | None) -> bool:
        self.times.append(time.monotonic())
        self.told.append(found)
        self.hostnames.append(hostname)
        assert self.gate.wait(60)
        if self.failure is not None:
            raise self.failure
        return len(self.told) < 2 or self.told[-2] != found


@pytest.fixture(autouse=True)
def settles_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SETTLES", 0.01)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def make(notes: Notes) -> Iterator[Make]:
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


@pytest.fixture
def sync(make: Make) -> PlacementSync:
    """It has told of :data:`HOST`."""
    sync = make()
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["told_at"])
    return sync


def waits(sync: PlacementSync) -> bool:
    """Whether its thread has nothing to do now, and waits."""
    with sync._worker.condition:
        return bool(sync._worker.condition._waiters) and not sync._is_due()  # type: ignore[attr-defined]


def configured(tmp_path: Path, text: str) -> cfg.ConfigOpts:
    (tmp_path / "vmqos.conf").write_text(text)
    return loader.load(["--config-file", str(tmp_path / "vmqos.conf")])


def made_of(conf: cfg.ConfigOpts) -> PlacementSync:
    sync = PlacementSync.of(conf)
    assert sync is not None
    return sync


def test_what_the_agent_says_first_is_told(sync: PlacementSync, notes: Notes) -> None:
    assert (notes.told, notes.hostnames) == ([HOST], [NAME])
    assert sync.health == {
        "where": "somewhere",
        "error": None,
        "told_at": pytest.approx(time.time(), abs=60),
        "inventories": {LLC_WAYS: 9, LLC_CLASSES: 15},
        "traits": sorted({L3_CAT, CMT}),
        "changes": 1,
        "failures": 0,
        "changed_by_other": None,
    }


def test_what_is_new_is_told_however_long_no_look_is_wanted(make: Make, notes: Notes) -> None:
    sync = make(check_interval=1e12)
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["told_at"])
    sync.offer(HOST, "another")
    eventually(lambda: notes.hostnames == [NAME, "another"])


def test_another_gateway_that_overwrites_what_was_told_is_told_until_it_has_not_for_some_looks(
    make: Make, notes: Notes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "CONTESTED", 1e6)
    notes.changed_by_other = "of CUSTOM_LLC_WAYS total 9 is 4 now"
    sync = make(check_interval=0.05)
    sync.offer(HOST, NAME)
    eventually(lambda: len(notes.told) > 2)
    told = str(sync.health["changed_by_other"])
    assert told.startswith("another client has changed somewhere: of CUSTOM_LLC_WAYS total 9 is 4 now.")
    assert "two hosts have one hypervisor hostname" in told and "[placement] hypervisor_hostname" in told
    assert [record.levelname for record in caplog.records if record.message == told][:1] == ["WARNING"]
    notes.changed_by_other = ""
    looks = len(notes.told)
    eventually(lambda: len(notes.told) > looks + 2)
    assert sync.health["changed_by_other"] == told
    monkeypatch.setattr(placement, "CONTESTED", 0)
    eventually(lambda: sync.health["changed_by_other"] is None)


def test_only_a_change_is_told(sync: PlacementSync, notes: Notes) -> None:
    for _ in range(3):
        # Every answer makes values anew.
        sync.offer(replace(HOST), NAME)
        time.sleep(0.05)
    assert len(notes.told) == 1
    sync.offer(LESS, NAME)
    eventually(lambda: len(notes.told) == 2)
    assert notes.told == [HOST, LESS]


def test_a_change_that_is_undone_before_it_settled_is_not_told(
    sync: PlacementSync, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling, settled, over = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)
    settle = PlacementSync._settle

    def settles(sync: PlacementSync) -> bool:
        settling.release()
        assert settled.wait(60)
        ends = settle(sync)
        over.release()
        return ends

    monkeypatch.setattr(PlacementSync, "_settle", settles)
    sync.offer(LESS, NAME)
    assert settling.acquire(timeout=60)
    sync.offer(HOST, NAME)
    settled.set()
    assert over.acquire(timeout=60)
    eventually(functools.partial(waits, sync))
    sync.offer(replace(HOST, ways=7), NAME)
    eventually(lambda: len(notes.told) > 1)
    assert notes.told == [HOST, replace(HOST, ways=7)]


def test_what_vms_hold_is_told_only_where_it_is_not_asked_for(notes: Notes) -> None:
    for asks, expected in ((True, 0), (False, 4)):
        notes.asks_what_is_held = asks
        sync = PlacementSync(notes, 3600.0, Backoff(0.01, 0.05))
        sync.start()
        sync.offer(replace(HOST, held=4), NAME)
        eventually(lambda sync=sync: sync.health["told_at"])
        sync.stop()
        assert notes.told[-1].held == expected


def test_what_was_told_is_looked_at_again_from_time_to_time(make: Make, notes: Notes) -> None:
    sync = make(check_interval=0.02)
    sync.offer(HOST, NAME)
    eventually(lambda: len(notes.told) > 3)
    assert len(set(notes.told)) == 1
    assert sync.health["changes"] == 1


def test_before_the_agent_knows_its_host_nothing_is_told(make: Make, notes: Notes) -> None:
    sync = make(check_interval=0.02)
    time.sleep(0.1)
    sync.offer(None, None)
    time.sleep(0.2)
    assert notes.told == []
    assert (sync.health["where"], sync.health["told_at"], sync.health["inventories"]) == ("somewhere", None, {})


def test_a_resctrl_that_is_gone_for_long_leaves_nothing_to_promise(
    sync: PlacementSync, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "WITHOUT_RESCTRL", 0.3)
    lost = time.monotonic()
    sync.offer(None, NAME)
    eventually(lambda: notes.told[-1] == NOTHING)
    assert notes.times[1] - lost >= 0.3, "it may just be mounted anew"
    time.sleep(0.1)
    assert len(notes.told) == 2
    sync.offer(HOST, NAME)
    eventually(lambda: len(notes.told) == 3)
    assert notes.told[-1] == notes.told[0]


def test_while_the_agent_is_away_nothing_is_told_whatever_is_due(
    make: Make, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "WITHOUT_RESCTRL", 3600.0)
    sync = make(check_interval=0.02)
    sync.offer(HOST, NAME)
    eventually(lambda: len(notes.told) > 1)
    sync.offer(None, NAME)
    sync.agent_is_away()
    eventually(functools.partial(waits, sync))
    told = len(notes.told)
    # The time without resctrl is over by now, and many looks are due.
    monkeypatch.setattr(placement, "WITHOUT_RESCTRL", 0.0)
    time.sleep(0.5)
    assert len(notes.told) == told and set(notes.told) == {HOST}
    # An agent that was started anew does not know its host at once: the time begins again.
    monkeypatch.setattr(placement, "WITHOUT_RESCTRL", 1.5)
    back = time.monotonic()
    sync.offer(None, NAME)
    eventually(lambda: notes.told[-1] == NOTHING)
    assert notes.times[told] - back >= 1.5


def test_when_the_agent_is_back_what_was_told_is_looked_at_at_once(sync: PlacementSync, notes: Notes) -> None:
    sync.agent_is_away()
    sync.offer(HOST, NAME)
    eventually(lambda: len(notes.told) == 2)
    time.sleep(0.1)
    assert notes.told == [HOST, HOST]


def test_a_compute_node_that_gets_another_name_is_told_under_it_at_once(sync: PlacementSync, notes: Notes) -> None:
    sync.offer(HOST, "node-2")
    eventually(lambda: notes.hostnames == [NAME, "node-2"])


def test_a_name_that_was_not_known_yet_is_used_at_once_whatever_failed_without_it(notes: Notes) -> None:
    notes.failure = HostnameUnknown()
    sync = PlacementSync(notes, 3600.0, Backoff(3600.0, 3600.0))
    sync.start()
    sync.offer(HOST, None)
    eventually(lambda: sync.health["failures"])
    notes.failure = None
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["told_at"])
    assert notes.hostnames == [None, NAME]
    sync.stop()


def test_an_agent_that_goes_and_comes_back_while_placement_is_told_has_it_looked_at_once_more(
    make: Make, notes: Notes
) -> None:
    sync = make()
    notes.gate.clear()
    sync.offer(HOST, NAME)
    eventually(lambda: notes.told)
    sync.agent_is_away()
    sync.offer(HOST, NAME)
    notes.gate.set()
    eventually(lambda: len(notes.told) == 2)


def test_what_could_not_be_told_is_told_later_and_complained_of_once(
    make: Make, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    notes.failure = Unreachable("placement", "refused")
    sync = make()
    with caplog.at_level(logging.INFO, "vmqos"):
        sync.offer(HOST, NAME)
        eventually(lambda: sync.health["failures"] > 3)
        assert "Placement can't be reached: refused" in (sync.health["error"] or "")
        assert sync.health["told_at"] is None
        notes.failure = None
        eventually(lambda: sync.health["told_at"])
    assert sync.health["error"] is None
    complaints = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(complaints) == 1 and "refused" in complaints[0].message
    assert [record for record in caplog.records if "could be told again" in record.message]


def test_an_error_that_nobody_thought_of_does_not_end_it(
    make: Make, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    notes.failure = KeyError("resource_providers")
    sync = make()
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["failures"] > 3)
    assert sync.health["error"] == "KeyError: 'resource_providers'"
    assert caplog.records[0].exc_info, "this one is worth a traceback"
    assert len([record for record in caplog.records if record.exc_info]) == 1, "and not one after each pause"
    notes.failure = None
    eventually(lambda: sync.health["told_at"])


def test_it_never_keeps_its_caller_waiting_and_the_last_word_counts(make: Make, notes: Notes) -> None:
    sync = make()
    notes.gate.clear()
    sync.offer(HOST, NAME)
    eventually(lambda: notes.told)
    began = time.monotonic()
    for ways in range(8, 2, -1):
        sync.offer(replace(HOST, ways=ways), NAME)
    assert time.monotonic() - began < 50, "Placement answers only after that"
    notes.gate.set()
    eventually(lambda: notes.told[-1].ways == 3)
    assert len(notes.told) == 2


def test_it_is_at_rest_between_two_tries_and_without_an_agent(notes: Notes) -> None:
    notes.failure = Unreachable("placement", "refused")
    sync = PlacementSync(notes, 3600.0, Backoff(60.0, 60.0))
    sync.start()
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["failures"])
    used = time.process_time()
    sync.offer(LESS, NAME)
    time.sleep(0.2)
    sync.agent_is_away()
    time.sleep(0.2)
    assert time.process_time() - used < 0.2
    assert len(notes.told) == 1
    sync.stop()


def test_a_name_that_is_not_known_yet_is_an_error_that_says_what_helps(tmp_path: Path) -> None:
    settings = f"[placement]\n{CREDENTIALS}[agent]\nretry_delay_min = 0.1\nretry_delay_max = 0.1\n"
    sync = made_of(configured(tmp_path, settings))
    sync.start()
    sync.offer(HOST, None)
    eventually(lambda: sync.health["error"])
    assert "[placement] hypervisor_hostname" in (sync.health["error"] or "")
    sync.offer(HOST, NAME)
    eventually(lambda: "Placement can't be reached" in (sync.health["error"] or ""))
    sync.stop()


def test_without_credentials_nothing_is_told(tmp_path: Path) -> None:
    assert PlacementSync.of(configured(tmp_path, "[placement]\nregion_name = RegionOne\n")) is None


def test_credentials_and_a_file_at_once_are_refused_with_the_reason(tmp_path: Path) -> None:
    conf = configured(tmp_path, f"[placement]\n{CREDENTIALS}provider_yaml = /etc/nova/provider_config/vmqos.yaml\n")
    with pytest.raises(ConfigurationError, match=r"provider_yaml = /etc/nova/.*counted twice"):
        PlacementSync.of(conf)


@pytest.mark.parametrize(
    ("name", "is_read"), [("vmqos.yaml", True), ("vmqos.yml", False), ("vmqos.conf", False), (".vmqos.yaml", False)]
)
def test_a_file_that_nova_compute_does_not_read_is_a_line_in_the_log(
    name: str, is_read: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    PlacementSync.of(configured(tmp_path, f"[placement]\nprovider_yaml = {tmp_path / name}\n"))
    assert ["reads the files *.yaml alone" in record.message for record in caplog.records] == (
        [] if is_read else [True]
    )


def test_the_file_is_written_and_the_log_asks_for_a_restart_of_nova_compute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "provider.yaml"
    conf = configured(tmp_path, f"[placement]\nprovider_yaml = {path}\ncheck_interval = 1\n")
    sync = made_of(conf)
    sync.start()
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["told_at"])
    assert sync.health["where"] == str(path)
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    assert provider["identification"] == {"uuid": "$COMPUTE_NODE"}
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert str(path) in warning and "restart nova-compute" in warning
    sync.stop()


def test_the_file_lets_one_server_have_as_many_ways_as_the_largest_running_vm_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "provider.yaml"
    sync = made_of(configured(tmp_path, f"[placement]\nprovider_yaml = {path}\n"))
    sync.start()
    # Ways that are reserved since: the VM with 4 ways runs, and no other one can have as many.
    sync.offer(replace(HOST, longest=3, held=4), NAME)
    eventually(lambda: sync.health["told_at"])
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    found = {name: value for one in provider["inventories"]["additional"] for name, value in one.items()}
    assert found[LLC_WAYS]["max_unit"] == 4
    sync.stop()


def inventories_of(path: Path) -> dict[str, dict[str, Any]]:
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    return {name: value for one in provider["inventories"]["additional"] for name, value in one.items()}


def test_a_class_that_the_host_lists_no_more_stays_in_the_file_all_reserved(tmp_path: Path) -> None:
    """Servers may hold it, and a nova-compute that is to take away what they hold does not start."""
    path = tmp_path / "provider.yaml"
    target = placement.File(str(path))
    target.tell(replace(HOST, offered=frozenset({SHARED})), NAME)
    assert target.tell(HOST, NAME)
    found = inventories_of(path)[SHARED]
    assert (found["total"], found["reserved"], found["max_unit"]) == (1, 1, 1)
    assert not placement.File(str(path)).tell(HOST, NAME)
    assert target.tell(replace(HOST, offered=frozenset({SHARED})), NAME)
    assert inventories_of(path)[SHARED]["reserved"] == 0


def test_the_file_never_lets_one_server_have_fewer_ways_than_before(tmp_path: Path) -> None:
    """When the host boots, all servers are shut off; and a Nova that hangs tells no flavor."""
    path = tmp_path / "provider.yaml"
    placement.File(str(path)).tell(replace(HOST, held=9), NAME)
    assert placement.File(str(path)).tell(replace(LESS, held=0), NAME)
    found = inventories_of(path)[LLC_WAYS]
    assert (found["total"], found["max_unit"]) == (6, 9)


def test_a_host_that_lost_resctrl_reserves_what_the_file_has_so_that_servers_can_be_moved_away(tmp_path: Path) -> None:
    """nova-compute may be restarted meanwhile. It can't take away a class that servers hold, nor move 4 ways of 1."""
    path = tmp_path / "provider.yaml"
    target = placement.File(str(path))
    assert target.tell(replace(HOST, offered=frozenset({SHARED})), NAME)
    assert target.tell(NOTHING, NAME)
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    found = {name: value for one in provider["inventories"]["additional"] for name, value in one.items()}
    assert found.keys() == {LLC_WAYS, LLC_CLASSES, SHARED}
    assert all(value["reserved"] == value["total"] for value in found.values())
    assert found[LLC_WAYS]["max_unit"] == 9
    assert "traits" not in provider
    assert not target.tell(NOTHING, NAME)
    assert target.tell(HOST, NAME)


@pytest.mark.parametrize("text", [None, "", f"{provider_yaml._HEAD}providers: 3\n"])
def test_a_host_that_never_had_anything_to_promise_gets_a_file_that_says_so(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "provider.yaml"
    if text is not None:
        path.write_text(text)
    assert placement.File(str(path)).tell(NOTHING, NAME)
    assert path.read_text() == provider_yaml.render(NOTHING.inventories)


@pytest.mark.parametrize("told", [HOST, NOTHING], ids=["something", "nothing"])
@pytest.mark.parametrize("content", [b"meta: {schema_version: '1.0'}\nproviders: []\n", b"\xff\xfe"])
def test_a_file_that_no_gateway_wrote_is_left_as_it_is_and_the_error_says_what_to_do(
    tmp_path: Path, told: Capacity, content: bytes
) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_bytes(content)
    with pytest.raises(CloudError, match=r"gpus.yaml.*left as it is.*provider_yaml"):
        placement.File(str(path)).tell(told, NAME)
    assert path.read_bytes() == content


def test_a_file_that_can_not_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "provider.yaml"
    sync = made_of(configured(tmp_path, f"[placement]\nprovider_yaml = {path}\n"))
    sync.start()
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["error"])
    assert "nowhere" in (sync.health["error"] or "")
    sync.stop()


def test_a_placement_that_is_away_is_an_error_that_says_so(tmp_path: Path) -> None:
    sync = made_of(configured(tmp_path, f"[placement]\n{CREDENTIALS}"))
    sync.start()
    sync.offer(HOST, NAME)
    eventually(lambda: sync.health["error"])
    assert "Placement can't be reached" in (sync.health["error"] or "")
    assert "127.0.0.1" in (sync.health["error"] or "")
    sync.stop()


def test_a_password_is_never_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf: Any = configured(tmp_path, f"[placement]\n{CREDENTIALS.replace('= x', '= hush-hush')}")
    sync = made_of(conf)
    with caplog.at_level(logging.DEBUG):
        sync.start()
        sync.offer(HOST, NAME)
        eventually(lambda: sync.health["error"])
        sync.stop()
    assert "hush-hush" not in f"{caplog.text}{sync.health}"
