# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client.exposition import choose_encoder

from tests.unit.agent.serve.test_vms import UUID, snapshot, with_record
from tests.unit.gateway.answers import (
    EXECUTED,
    HARDWARE,
    NEIGHBOURS,
    NOTIFICATIONS,
    NOVA,
    PLACEMENT,
    over_the_socket,
    telemetry,
)
from tests.unit.telemetry.values import HOST, vm
from tests.unit.telemetry.values import snapshot as counted
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.remember.pass_times import PassTimes
from vmqos.agent.remember.promise_time import PromiseTime
from vmqos.agent.remember.revision import Revision
from vmqos.agent.sample.sampler import Telemetry
from vmqos.agent.serve import caches, health_report, vms
from vmqos.agent.snapshot import Health, Snapshot
from vmqos.agent.trial import Trials
from vmqos.allocation import Allocation, PromiseState
from vmqos.allocation.reasons import NO_CACHE
from vmqos.gateway.metrics import text
from vmqos.gateway.metrics.kept_counters import KeptCounters
from vmqos.gateway.metrics.text import FORMATS, Metrics
from vmqos.hypervisor.connection import Call
from vmqos.local_api import contract
from vmqos.local_api.exceptions import (
    AgentFailed,
    AgentNotRunning,
    AgentRefused,
    AgentTimeout,
    LocalApiError,
    NotOurApi,
)
from vmqos.telemetry import GroupReading, VmReading

NOT_READ = AgentFailed(status=503, text="resctrl is not mounted")


def judged(ago: float | None, interval: float = 2.0) -> contract.Neighbours:
    """What the cache is to the VM of these tests, by samples that end so many seconds ago."""
    when = None if ago is None else time.time() - ago
    return {**NEIGHBOURS, "time": when, "interval": interval, "vms": [{**NEIGHBOURS["vms"][0], "uuid": UUID}]}


@dataclass
class PlayedAgent:
    """An agent that a test makes up, and the answers that the real one would make of it.

    :ivar counters: the answer about counters, or the error instead of it.
    :ivar hardware: the answer about hardware events, or the error instead of it.
    :ivar judged: the answer about neighbours, or the error instead of it.
    :ivar asked: how often the agent was asked for counters.
    :ivar listed: how often for the VMs.
    """

    snapshot: Snapshot = field(default_factory=snapshot)
    started: float = field(default_factory=lambda: time.monotonic() - 60)
    call: Call | None = None
    counters: contract.Telemetry | LocalApiError = NOT_READ
    hardware: contract.HardwareEvents | LocalApiError = field(default_factory=lambda: HARDWARE)
    judged: contract.Neighbours | LocalApiError = field(default_factory=lambda: judged(0.0))
    swept_at: float | None = None
    asked: int = 0
    listed: int = 0
    pid: int = field(default_factory=os.getpid)

    starting = False
    uri = "qemu:///system"
    socket = "/run/vmqos/gateway.sock"
    filesystem = SimpleNamespace(root="/sys/fs/resctrl")
    connection = SimpleNamespace(is_connected=True, last_error="")
    start_watch = SimpleNamespace(is_watching=True, last_error="")
    trials = Trials(lambda: None)
    conf = SimpleNamespace(agent=SimpleNamespace(audit_interval=1.0))
    pass_times = PassTimes()
    revision = Revision("first")
    events = EventLog()

    @property
    def _health(self) -> Health:
        return Health(looked_at=time.monotonic() - 3, unserved={"u1": "no PID file", "u2": "no PID file"})

    def unanswered(self) -> Call | None:
        return self.call

    def health(self) -> Any:
        agent = SimpleNamespace(
            health=self._health,
            **{name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "health"},
        )
        sampler = SimpleNamespace(swept_at=self.swept_at, interval=2.0, is_old=False)
        told = health_report.health(agent, sampler)  # type: ignore[arg-type]
        return over_the_socket({**told, "pid": self.pid})

    def vms(self) -> Any:
        self.listed += 1
        return over_the_socket(vms.Vms().told(self.snapshot))

    def caches(self) -> Any:
        return over_the_socket(caches.caches(self.snapshot) + caches.l2_caches(self.snapshot))

    def newest_telemetry(self) -> contract.Telemetry:
        self.asked += 1
        if isinstance(self.counters, LocalApiError):
            raise self.counters
        return self.counters

    def hardware_events(self) -> contract.HardwareEvents:
        if isinstance(self.hardware, LocalApiError):
            raise self.hardware
        return self.hardware

    def neighbours(self) -> contract.Neighbours:
        if isinstance(self.judged, LocalApiError):
            raise self.judged
        return self.judged


def counting(*found: VmReading, age: float = 0.0, interval: float = 2.0) -> PlayedAgent:
    """An agent whose counters say this."""
    told = telemetry(counted(*found), age, interval)
    return PlayedAgent(counters=told, swept_at=time.monotonic() - age)


def scrape(agent: PlayedAgent, placement: Any = None, nova: Any = None, notifications: Any = None) -> bytes:
    openstack = SimpleNamespace(placement=lambda: placement, nova=lambda: nova, notifications=lambda: notifications)
    return Metrics(agent, openstack).answer("")[1]  # type: ignore[arg-type]


def made_of(agent: PlayedAgent) -> Metrics:
    openstack = SimpleNamespace(placement=lambda: None, nova=lambda: None, notifications=lambda: None)
    return Metrics(agent, openstack)  # type: ignore[arg-type]


def values(text: bytes) -> dict[str, float]:
    """The values by sample, labels included."""
    lines = (line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#"))
    return {sample: float(value) for sample, _, value in lines}


WHO = f'flavor="c4",name="gold",project="p",uuid="{UUID}"'


def test_what_the_agent_answers_is_told() -> None:
    found = values(scrape(PlayedAgent()))
    who = f'flavor="c4",name="gold",project="p",reason="",state="kept",uuid="{UUID}"'
    assert found[f"vmqos_vm_state{{{who}}}"] == 1
    assert found[f'vmqos_vm_cache_ways{{cache="0",{WHO}}}'] == 4
    room = ("ways", "size_bytes", "free_ways", "largest_free_run_ways")
    assert [found[f'vmqos_cache_{name}{{cache="0"}}'] for name in room] == [11, 11 << 20, 5, 5]
    owners = ("default", "vm", "class", "foreign")
    assert [found[f'vmqos_groups{{owner="{owner}"}}'] for owner in owners] == [1, 1, 0, 0]
    assert (found["vmqos_closids"], found["vmqos_closids_used"]) == (16, 2)
    assert (found["vmqos_rmids"], found["vmqos_rmids_used"]) == (32, 2)
    assert (found["vmqos_resctrl_up"], found["vmqos_libvirt_up"], found["vmqos_starts_watched"]) == (1, 1, 1)


def test_a_reason_is_one_word() -> None:
    pending = Allocation(PromiseState.PENDING, reason=NO_CACHE)
    text = scrape(PlayedAgent(with_record(snapshot(), allocation=pending))).decode()
    assert 'reason="no-cache",state="pending"' in text
    assert "vmqos_vm_cache_ways{" not in text


def test_without_resctrl_its_resources_are_left_out() -> None:
    found = values(scrape(PlayedAgent(replace(snapshot(), resctrl=None))))
    assert found["vmqos_resctrl_up"] == 0
    assert not [name for name in found if name.startswith(("vmqos_closids", "vmqos_rmids", "vmqos_groups", "vmqos_ca"))]


def test_a_libvirt_that_hangs_is_not_up() -> None:
    assert values(scrape(PlayedAgent(call=Call("virConnectListAllDomains", 0.0))))["vmqos_libvirt_up"] == 0


def test_what_openstack_was_told_is_told_where_it_is_told_anything() -> None:
    assert not [name for name in values(scrape(PlayedAgent())) if "placement" in name or "nova" in name]
    failed: contract.PlacementHealth = {**PLACEMENT, "error": "can't be reached", "told_at": None, "inventories": {}}
    found = values(scrape(PlayedAgent(), failed, {"error": None, "waiting": 2}))
    assert (found["vmqos_placement_up"], found["vmqos_placement_failures_total"]) == (0, 2)
    assert (found["vmqos_nova_up"], found["vmqos_flavors_unknown"]) == (1, 2)
    found = values(scrape(PlayedAgent(), PLACEMENT, NOVA, NOTIFICATIONS))
    assert found["vmqos_gateway_notifications_sent_total"] == 4
    assert (found["vmqos_placement_up"], found["vmqos_nova_up"]) == (1, 0)
    assert found['vmqos_placement_inventory{resource_class="CUSTOM_LLC_WAYS"}'] == 9


def test_a_scrape_has_counters_states_and_both_processes() -> None:
    content_type, text = made_of(counting(vm((4096, 1, 1), uuid=UUID))).answer("")
    assert content_type.startswith("text/plain; version=")
    for name in ("vmqos_vm_llc_occupancy_bytes{", "vmqos_vm_state{", "process_cpu_seconds_total "):
        assert f"\n{name}" in text.decode()
    assert "\nvmqos_gateway_process_cpu_seconds_total " in text.decode()


@pytest.fixture
def other() -> Iterator[int]:
    """The PID of another process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_the_process_is_the_agents_and_the_gateways_own_has_a_prefix(other: int) -> None:
    agent = counting()
    agent.pid = other
    found = values(scrape(agent))
    assert found["process_start_time_seconds"] > found["vmqos_gateway_process_start_time_seconds"]
    agent.pid = 0
    found = values(scrape(agent))
    assert "process_start_time_seconds" not in found and "vmqos_gateway_process_start_time_seconds" in found


def test_a_client_that_prefers_openmetrics_gets_it() -> None:
    content_type, text = made_of(counting()).answer("application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_a_scrape_without_counters_is_answered_all_the_same() -> None:
    text = scrape(PlayedAgent()).decode()
    assert "vmqos_vm_state{" in text
    assert "vmqos_vm_llc_occupancy_bytes{" not in text
    assert text.count("vmqos_vm_telemetry_missing{") == text.count('reason="no-sweep"') / 2 == 3


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (AgentNotRunning(socket="/run/a"), []),
        (AgentFailed(status=500, text="a defect"), ["a defect"]),
    ],
)
def test_without_an_agent_the_text_says_so_and_what_the_gateway_itself_knows(
    error: LocalApiError, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    agent = counting()
    openstack = SimpleNamespace(placement=lambda: PLACEMENT, nova=lambda: NOVA, notifications=lambda: NOTIFICATIONS)
    made = Metrics(agent, openstack)  # type: ignore[arg-type]
    assert values(made.answer("")[1])["vmqos_agent_up"] == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "SHARED_FOR", 0.0)
        patch.setattr(agent, "health", Mock(side_effect=error))
        for _ in range(2):
            content_type, told = made.answer("application/openmetrics-text; version=1.0.0")
        assert content_type.startswith("application/openmetrics-text") and told.endswith(b"# EOF\n")
        told = made.answer("")[1]
    names = {name.partition("{")[0] for name in values(told)}
    assert values(told)["vmqos_agent_up"] == 0 and b"# TYPE vmqos_agent_up gauge" in told
    assert {"vmqos_placement_up", "vmqos_nova_up", "vmqos_gateway_notifications_up"} <= names
    assert "vmqos_gateway_process_start_time_seconds" in names
    assert not [name for name in names if name.startswith(("vmqos_vm", "vmqos_last", "process_"))]
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == logged, "once, and by AgentWatch else"
    agent.counters = NOT_READ
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "SHARED_FOR", 0.0)
        assert values(made.answer("")[1])["vmqos_agent_up"] == 1


def test_each_part_tells_its_age_and_what_was_never_done_is_as_old_as_the_agent() -> None:
    told = values(scrape(counting(age=1.5)))
    assert 3 <= told["vmqos_vms_look_age_seconds"] < 10
    assert 60 <= told["vmqos_pass_age_seconds"] < 70
    assert 1.5 <= told["vmqos_sweep_age_seconds"] < 8
    assert told["vmqos_vms_unserved"] == 2
    assert values(scrape(PlayedAgent()))["vmqos_sweep_age_seconds"] >= 60


def test_counters_that_stand_still_are_not_told_as_if_they_counted() -> None:
    text = scrape(counting(vm((4096, 1, 1), uuid=UUID), age=20.0)).decode()
    assert "vmqos_vm_llc_occupancy_bytes{" not in text
    assert text.count("vmqos_vm_telemetry_missing{") == text.count('reason="no-sweep"') / 2 == 3
    assert values(text.encode())["vmqos_sweep_age_seconds"] >= 20


def executing(age: float | None, unavailable: str = "") -> PlayedAgent:
    """An agent that has counted what its VM executes."""
    return PlayedAgent(hardware={**HARDWARE, "age_seconds": age, "unavailable": unavailable, "vms": {UUID: EXECUTED}})


def test_what_vms_execute_is_told_also_where_resctrl_can_not_be_read() -> None:
    found = values(scrape(executing(age=1.0)))
    assert found[f'vmqos_vm_instructions_total{{source="perf",uuid="{UUID}"}}'] == 8000
    assert found["vmqos_hardware_events_up"] == 1


@pytest.mark.parametrize("agent", [executing(age=9.1), executing(None), PlayedAgent(hardware=AgentRefused(text="no"))])
def test_hardware_events_that_are_old_or_not_told_are_left_out(agent: PlayedAgent) -> None:
    assert "vmqos_vm_instructions_total" not in scrape(agent).decode()


@pytest.mark.parametrize(
    ("ago", "interval", "is_told"),
    [
        (115.0, 2.0, True),
        (125.0, 2.0, False),
        (175.0, 60.0, True),
        (185.0, 60.0, False),
        (None, 2.0, False),
        # The clock was set back by an hour since.
        (-3600.0, 2.0, False),
    ],
)
def test_who_slows_whom_is_left_out_where_there_was_nothing_to_judge_by_for_a_while(
    ago: float | None, interval: float, is_told: bool
) -> None:
    found = values(scrape(PlayedAgent(judged=judged(ago, interval))))
    assert (f'vmqos_vm_cache_use{{use="starves",uuid="{UUID}"}}' in found) is is_told


def test_an_earlier_agent_that_judges_nothing_is_scraped_all_the_same() -> None:
    found = values(scrape(PlayedAgent(judged=AgentRefused(text="no"))))
    assert not [name for name in found if name.startswith(("vmqos_vm_neighbour", "vmqos_vm_cache_use"))]


def test_a_host_without_hardware_events_says_so() -> None:
    found = values(scrape(executing(None, "this kernel gives no hardware events")))
    assert found["vmqos_hardware_events_up"] == 0
    assert not [name for name in found if name.startswith("vmqos_vm_hardware_events")]


@pytest.mark.parametrize(
    ("interval", "age", "is_told"),
    [
        (0.0, 4.9, True),
        (0.0, 5.1, False),
        (2.0, 8.9, True),
        (2.0, 9.1, False),
        (60.0, 14.9, True),
        (60.0, 15.1, False),
    ],
)
def test_counters_are_too_old_after_three_times_the_age_at_which_the_agent_reads_them_anew(
    interval: float, age: float, is_told: bool
) -> None:
    text = scrape(counting(vm((4096, 1, 1), uuid=UUID), age=age, interval=interval)).decode()
    assert ("vmqos_vm_llc_occupancy_bytes{" in text) is is_told


@pytest.mark.parametrize("interval", [0.0, 0.5, 2.0, 3.0, 60.0])
def test_the_age_at_which_counters_are_read_anew_is_the_agents(interval: float) -> None:
    assert text.fresh_for(interval) == Telemetry("/sys/fs/resctrl", interval, 0.0).fresh_for


def test_the_vms_are_asked_for_when_something_changed_and_their_times_go_on_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text, "SHARED_FOR", -1.0)
    since = time.monotonic()
    agent = PlayedAgent(with_record(snapshot(), time=PromiseTime(PromiseState.KEPT, since)))
    metrics, told, listed, late = made_of(agent), [], 0, 0.0
    for number in range(6):
        before = time.monotonic() - since
        if number == 3:
            agent.snapshot = with_record(agent.snapshot, unmonitored="no RMID is left")
        found = values(metrics.answer("")[1])
        after = time.monotonic() - since
        if agent.listed > listed:
            # The time that the VMs' answer takes to come may be missing from then on.
            listed, late = agent.listed, after - before
        seconds = found[f'vmqos_vm_promise_seconds_total{{uuid="{UUID}"}}']
        assert before - late <= seconds <= after, "it is never ahead, or it would go back"
        told.append(seconds)
        time.sleep(0.02)
    assert told == sorted(told) and len(set(told)) == 6
    assert agent.listed == 2


def test_an_agent_that_names_no_revision_is_asked_for_its_vms_at_each_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "SHARED_FOR", -1.0)
    agent = PlayedAgent()
    told = agent.health()
    del told["revision"]
    monkeypatch.setattr(agent, "health", lambda: told)
    metrics = made_of(agent)
    for _ in range(3):
        metrics.answer("")
    assert agent.listed == 3


def test_scrapes_at_the_same_time_share_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = counting()
    made = made_of(agent)
    assert len({made.answer("") for _ in range(20)}) == 1
    assert agent.asked == 1
    assert made.answer("application/openmetrics-text; version=1.0.0")[1].endswith(b"# EOF\n"), "of the same format"
    monkeypatch.setattr("vmqos.gateway.metrics.text.SHARED_FOR", 0.0)
    made.answer("")
    assert agent.asked == 3


def test_scrapes_that_come_while_an_agent_that_hangs_is_asked_do_not_wait_for_it_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, hangs, found = counting(), threading.Event(), list[bytes]()

    def ask(self: PlayedAgent) -> Any:
        self.asked += 1
        assert hangs.wait(60)
        raise AgentTimeout(socket=self.socket, seconds=9)

    monkeypatch.setattr(PlayedAgent, "newest_telemetry", ask)
    monkeypatch.setattr("vmqos.gateway.metrics.text.SHARED_FOR", 600.0)
    made = made_of(agent)
    threads = [threading.Thread(target=lambda: found.append(made.answer("")[1])) for _ in range(3)]
    for thread in threads:
        thread.start()
    hangs.set()
    for thread in threads:
        thread.join()
    assert agent.asked == 1
    assert [values(text)["vmqos_agent_up"] for text in found] == [0, 0, 0]


A_DEFECT = AgentFailed(status=500, text="a defect")

OF_PARTS = {
    "vms": "vmqos_vm_promise_state",
    "caches": "vmqos_cache_ways",
    "counters": "vmqos_vm_llc_occupancy_bytes",
    "hardware-events": "vmqos_vm_instructions_total",
    "neighbours": "vmqos_vm_cache_use",
}
"""A metric of each answer of the agent's."""

WITHOUT_VMS = {"vms", "counters", "hardware-events", "neighbours"}
"""The answers of which nothing is told of VMs that are not known."""


def telling_all() -> PlayedAgent:
    """An agent that has something to tell of everything."""
    agent = counting(vm((4096, 1, 1), uuid=UUID))
    agent.hardware = {**HARDWARE, "age_seconds": 1.0, "unavailable": "", "vms": {UUID: EXECUTED}}
    return agent


def parts_in(text: bytes) -> set[str]:
    names = {name.partition("{")[0] for name in values(text)}
    return {part for part, name in OF_PARTS.items() if name in names}


def missing_in(text: bytes) -> set[str]:
    return {part for part in OF_PARTS if f'vmqos_agent_answer_missing{{part="{part}"}}' in values(text)}


@pytest.mark.parametrize("error", [A_DEFECT, NotOurApi(socket="/run/a", problem="it is no JSON")])
@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("vms", "vms"),
        ("caches", "caches"),
        ("newest_telemetry", "counters"),
        ("hardware_events", "hardware-events"),
        ("neighbours", "neighbours"),
    ],
)
def test_one_answer_that_is_an_error_leaves_all_others_told(
    question: str,
    part: str,
    error: LocalApiError,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(text, "SHARED_FOR", -1.0)
    agent = telling_all()
    made = made_of(agent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlayedAgent, question, Mock(side_effect=error))
        for _ in range(2):
            told = made.answer("")[1]
    assert values(told)["vmqos_agent_up"] == 1 and missing_in(told) == {part}
    assert parts_in(told) == OF_PARTS.keys() - (WITHOUT_VMS if part == "vms" else {part})
    (record,) = caplog.records
    assert record.levelname == "WARNING" and part in record.message and str(error) in record.message
    told = made.answer("")[1]
    assert parts_in(told) == OF_PARTS.keys() and not missing_in(told)


def test_an_agent_whose_answers_take_long_is_asked_for_what_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(text, "TIME_TO_ASK", 0.05)
    monkeypatch.setattr(text, "SHARED_FOR", -1.0)
    agent = telling_all()
    made, at_once = made_of(agent), PlayedAgent.newest_telemetry
    made.answer("")

    def late(agent: PlayedAgent) -> contract.Telemetry:
        time.sleep(0.1)
        return at_once(agent)

    monkeypatch.setattr(PlayedAgent, "newest_telemetry", late)
    told = made.answer("")[1]
    assert values(told)["vmqos_agent_up"] == 1 and missing_in(told) == {"hardware-events", "neighbours"}
    assert parts_in(told) == {"vms", "caches", "counters"}, "these are known still, and need not be asked for"
    told = scrape(agent)
    assert missing_in(told) == OF_PARTS.keys() - {"counters"}
    assert "there was no time left to ask for them" in caplog.text


def test_a_text_that_is_shared_no_more_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "SHARED_FOR", 0.0)
    made = made_of(counting())
    for kind in sorted(FORMATS):
        made.answer(kind)
    assert len(made._made) == 1


@pytest.mark.parametrize("broken", [{"bandwidth_unit": "furlongs"}, {"masks": {"0": "no mask"}}])
def test_an_answer_of_which_no_metrics_can_be_made_leaves_all_others_told(
    broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = telling_all()
    (first, *others) = agent.vms()
    monkeypatch.setattr(PlayedAgent, "vms", lambda self: [{**first, "bandwidth": {"0": 1}, **broken}, *others])
    told = scrape(agent)
    assert values(told)["vmqos_agent_up"] == 1 and missing_in(told) == {"vms"}
    assert parts_in(told) == OF_PARTS.keys() - {"vms"}
    (record,) = caplog.records
    assert "no metrics can be made of the answer" in record.message


def test_counters_of_which_no_metrics_can_be_made_are_told_as_missing(caplog: pytest.LogCaptureFixture) -> None:
    agent = telling_all()
    del agent.counters["host"]["caches"]  # type: ignore[index, union-attr]
    told = scrape(agent)
    assert missing_in(told) == {"counters"} and parts_in(told) == OF_PARTS.keys() - {"counters"}
    assert told.count(b'reason="no-sweep"') == 6
    assert len(caplog.records) == 1


@pytest.mark.parametrize("missing", ["pid", "pass_seconds"])
def test_an_agent_of_whose_health_no_metrics_can_be_made_does_not_answer(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = PlayedAgent()
    told = agent.health()
    del told[missing]
    monkeypatch.setattr(agent, "health", lambda: told)
    assert values(scrape(agent))["vmqos_agent_up"] == 0
    (record,) = caplog.records
    assert "no metrics can be made of its answers" in record.message


@pytest.mark.parametrize("asks_old", [False, True])
def test_no_counter_of_a_vm_or_a_group_falls_when_the_gateway_is_started_anew(asks_old: bool, tmp_path: Path) -> None:
    openstack = SimpleNamespace(placement=lambda: None, nova=lambda: None, notifications=lambda: None)
    kept = str(tmp_path / "gateway.counters")

    def scraped(total: int, local: int, of_class: int, generation: str, metrics: Metrics | None = None) -> Any:
        classes = {"class-1": GroupReading("7", vm((5, of_class, 0)).caches, {})}
        reading = vm((5, total, local), uuid=UUID, generation=generation)
        agent = PlayedAgent(counters=telemetry(counted(reading, host=replace(HOST, groups=classes)), 0.0, 2.0))
        metrics = metrics or Metrics(agent, openstack, asks_old, KeptCounters(kept))  # type: ignore[arg-type]
        metrics._agent = agent  # type: ignore[assignment]
        metrics._made.clear()
        found = values(metrics.answer("")[1])
        told = {name: value for name, value in found.items() if "_traffic" in name and "default" not in name}
        return told, metrics

    _, first = scraped(1000, 400, 500, "b+a")
    before, _ = scraped(970, 390, 490, "a", first)
    after, _ = scraped(970, 391, 480, "a")
    assert len(before) == 4 and after.keys() == before.keys()
    assert not {name: (before[name], after[name]) for name in before if after[name] < before[name]}
    assert after[f'vmqos_vm_memory_traffic_bytes_total{{cache="0",uuid="{UUID}"}}'] == 1000


@pytest.mark.parametrize(
    "accept", ["", "application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0;escaping=underscores"]
)
def test_each_client_gets_what_the_library_itself_writes_for_it(accept: str) -> None:
    def told(lines: bytes) -> list[bytes]:
        # The values are of another moment.
        return [line.rpartition(b" ")[0] for line in lines.splitlines()]

    made = made_of(counting())
    encode, content_type = choose_encoder(accept)
    assert (content_type, told(encode(made._registry))) == (made.answer(accept)[0], told(made.answer(accept)[1]))


@pytest.mark.parametrize("media", ["application/openmetrics-text", "text/plain"])
def test_a_client_that_invents_versions_has_one_text_made_for_all_of_them(media: str) -> None:
    agent = counting()
    metrics = made_of(agent)
    kinds = {metrics.answer(f"{media};version=1.0.{number};escaping=dots")[0] for number in range(1, 100)}
    assert len(kinds) == 1 and kinds <= FORMATS
    assert agent.asked == 1


@pytest.mark.parametrize("version", ["1-0.0", "x", "1.x", ""])
def test_a_client_that_asks_for_a_version_that_is_none_gets_the_metrics(version: str) -> None:
    media_type, text = made_of(PlayedAgent()).answer(f"application/openmetrics-text;version={version}")
    assert media_type.startswith(("text/plain", "application/openmetrics-text"))
    assert b"vmqos_agent_info" in text
