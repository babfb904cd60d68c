# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.agent.serve.test_vms import snapshot, with_record
from vmqos.agent.remember.event_log import EventLog
from vmqos.agent.remember.pass_times import PassTimes
from vmqos.agent.remember.revision import Revision
from vmqos.agent.serve import health_report
from vmqos.agent.snapshot import Health, Snapshot
from vmqos.agent.trial import Trials
from vmqos.allocation import Allocation, PromiseState
from vmqos.hypervisor.connection import Call
from vmqos.local_api import contract

NOW = 5000.0


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still: the cases are made long before they are run."""
    monkeypatch.setattr(health_report, "time", SimpleNamespace(monotonic=lambda: NOW))


def ago(seconds: float) -> float:
    return NOW - seconds


def well(**changes: Any) -> Health:
    """The health of a loop that works."""
    return replace(Health(passes=9, looked=True, looked_at=ago(1), passed_at=ago(0.5)), **changes)


@dataclass
class FakeAgent:
    """What of an agent is asked for here; it touches nothing that could hang."""

    health: Health = field(default_factory=well)
    snapshot: Snapshot = field(default_factory=snapshot)
    started: float = field(default_factory=lambda: ago(1000))
    starting: bool = False
    last_failed: bool = False
    connected: bool = True
    call: Call | None = None
    audit_interval: float = 1.0

    trials: Trials = field(default_factory=lambda: Trials(lambda: None))
    revision: Revision = field(default_factory=lambda: Revision("first"))
    events: EventLog = field(default_factory=EventLog)

    uri = "qemu:///system"
    filesystem = SimpleNamespace(root="/sys/fs/resctrl")
    start_watch: Any = field(default_factory=lambda: SimpleNamespace(is_watching=True, last_error=""))

    @property
    def pass_times(self) -> PassTimes:
        times = PassTimes()
        times.add(0.004, failed=True)
        times.add(0.002, failed=self.last_failed)
        return times

    @property
    def connection(self) -> Any:
        return SimpleNamespace(is_connected=self.connected, last_error="" if self.connected else "refused")

    @property
    def conf(self) -> Any:
        return SimpleNamespace(agent=SimpleNamespace(audit_interval=self.audit_interval))

    def unanswered(self) -> Call | None:
        return self.call


def counters(**changes: Any) -> Any:
    return SimpleNamespace(**{"swept_at": ago(2), "interval": 2.0, "is_old": False} | changes)


def told(telemetry: Any = None, **changes: Any) -> Mapping[str, Any]:
    return health_report.health(FakeAgent(**changes), telemetry or counters())  # type: ignore[arg-type]


HUNG = Call("virConnectListAllDomains", 0.0)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "ok"),
        ({"starting": True, "snapshot": Snapshot(), "health": Health()}, "starting"),
        ({"snapshot": replace(snapshot(), resctrl=None)}, "failing"),
        ({"health": well(resctrl_error="not mounted")}, "failing"),
        ({"last_failed": True}, "failing"),
        ({"connected": False}, "degraded"),
        ({"call": HUNG}, "degraded"),
        ({"health": well(unserved={"u": "no PID file"})}, "degraded"),
        ({"health": well(looked_at=ago(6))}, "degraded"),
        ({"health": well(passed_at=ago(6))}, "degraded"),
        ({"health": well(last_error="once, long ago")}, "ok"),
        ({"telemetry": counters(is_old=True)}, "degraded"),
    ],
)
def test_the_status_is_whether_the_agent_can_see_and_act(changes: dict[str, Any], status: str) -> None:
    assert told(**changes)["status"] == status


@pytest.mark.parametrize("state", PromiseState)
def test_how_a_vms_promise_stands_is_no_trouble_of_the_agents(state: PromiseState) -> None:
    found = told(snapshot=with_record(snapshot(), allocation=Allocation(state)))
    assert found["status"] == "ok"
    assert found["vms"][state.value] == 1


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({}, []),
        ({"health": well(looked_at=ago(4.5), passed_at=ago(4.5))}, []),
        ({"health": well(looked_at=ago(5.5))}, ["vms"]),
        ({"health": well(passed_at=ago(5.5))}, ["pass"]),
        ({"health": well(looked_at=ago(25), passed_at=ago(25)), "audit_interval": 10.0}, []),
        ({"health": well(looked_at=ago(35), passed_at=ago(35)), "audit_interval": 10.0}, ["vms", "pass"]),
        ({"health": well(looked_at=None, passed_at=None)}, ["vms", "pass"]),
        ({"health": well(looked_at=None, passed_at=None), "started": ago(3)}, []),
        ({"telemetry": counters(is_old=True)}, ["counters"]),
        ({"telemetry": counters(swept_at=None)}, ["counters"]),
        ({"telemetry": counters(swept_at=None, interval=600.0)}, []),
        ({"telemetry": counters(swept_at=None, interval=0.0)}, []),
    ],
)
def test_what_is_much_older_than_usual_is_named(changes: dict[str, Any], stale: list[str]) -> None:
    assert told(**changes)["stale"] == stale


def test_each_part_has_its_age() -> None:
    ages = told(health=well(looked_at=ago(3), passed_at=None))["ages"]
    assert ages == {"vms": 3, "pass": None, "counters": 2}


def test_the_last_failure_of_a_pass_has_its_age() -> None:
    found = told(health=well(last_error="once, long ago", failed_at=ago(7200)))
    assert (found["last_error"], found["last_error_age_seconds"]) == ("once, long ago", 7200)
    assert (told()["last_error"], told()["last_error_age_seconds"]) == (None, None)


def test_a_vm_that_is_not_served_is_named_with_the_reason() -> None:
    assert told(health=well(unserved={"u": "no PID file"}))["unserved"] == {"u": "no PID file"}


def test_the_oldest_of_several_moments_counts_and_one_that_never_was_is_none() -> None:
    assert health_report.oldest(ago(3), ago(7), ago(5)) == 7
    assert health_report.oldest(ago(3), None) is None


def test_all_that_the_contract_names_is_told_but_what_the_gateway_adds() -> None:
    found = told()
    everything = contract.Health.__required_keys__ | contract.Health.__optional_keys__
    assert found.keys() == everything - {"placement", "nova", "notifications"}
    for part, told_of in (("resctrl", contract.ResctrlHealth), ("libvirt", contract.LibvirtHealth)):
        assert found[part].keys() == told_of.__required_keys__ | told_of.__optional_keys__
    json.dumps(found, allow_nan=False)


def test_the_process_and_its_passes_are_told() -> None:
    found = told()
    assert (found["pid"], found["failed_passes"]) == (os.getpid(), 1)
    assert (found["pass_seconds"]["count"], found["pass_seconds"]["sum"]) == (2, 0.006)
    assert dict(found["pass_seconds"]["buckets"])[0.0025] == 1


@pytest.mark.parametrize(
    ("is_watching", "error"), [(True, ""), (False, ""), (False, "/run can't be watched: No such file"), (None, "")]
)
def test_whether_starts_are_watched_is_told_and_breaks_no_promise(is_watching: bool | None, error: str) -> None:
    found = told(start_watch=SimpleNamespace(is_watching=is_watching, last_error=error))
    assert (found["libvirt"]["starts_watched"], found["libvirt"]["watch_error"]) == (is_watching, error or None)
    assert found["status"] == "ok"


def test_what_resctrl_has_and_how_much_of_it_is_used_is_told() -> None:
    found = told()["resctrl"]
    assert found["groups"] == {"default": 1, "vm": 1, "class": 0, "foreign": 0}
    assert (found["closids"], found["closids_used"], found["rmids"], found["rmids_used"]) == (16, 2, 32, 2)


def test_a_host_that_monitors_nothing_has_no_rmids() -> None:
    before = snapshot()
    assert before.resctrl is not None
    plain = replace(before.resctrl, capabilities=replace(before.resctrl.capabilities, monitoring=None))
    found = told(snapshot=replace(before, resctrl=plain))["resctrl"]
    assert (found["closids"], found["rmids"]) == (16, 0)


def test_of_a_resctrl_that_can_not_be_read_nothing_is_told() -> None:
    found = told(snapshot=replace(snapshot(), resctrl=None))["resctrl"]
    assert found["groups"] == {}
    assert (found["closids"], found["closids_used"], found["rmids"], found["rmids_used"]) == (0, 0, 0, 0)


def test_what_changed_since_a_client_asked_is_named() -> None:
    agent = FakeAgent()

    def names() -> tuple[str, str]:
        told = health_report.health(agent, counters())  # type: ignore[arg-type]
        return told["revision"], told["last_event"]

    first = names()
    assert names() == first
    nobody = {"uuid": "", "name": "", "project": "", "flavor": ""}
    agent.events.add([{"kind": "host", "state": "ok", "before": "", "reason": "", "reason_code": "", **nobody}])  # type: ignore[typeddict-item]
    assert (names()[0], names()[1] != first[1]) == (first[0], True)
    agent.snapshot = snapshot()
    assert names()[0] != first[0]
