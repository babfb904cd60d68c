# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.agent.serve.test_vms import UUID, snapshot, with_record
from tests.unit.telemetry.values import snapshot as counted
from tests.unit.telemetry.values import vm
from vmqos.agent.life.pass_times import PassTimes
from vmqos.agent.serve.capacity import Capacity
from vmqos.agent.snapshot import Health
from vmqos.allocation import Allocation, PromiseState
from vmqos.allocation.reasons import NO_CACHE
from vmqos.extra_specs.resources import LLC_CLASSES, LLC_WAYS
from vmqos.gateway.metrics import Metrics, published
from vmqos.gateway.placement import Told
from vmqos.gateway.published import CacheState, VmState
from vmqos.resctrl import exceptions
from vmqos.telemetry import Snapshot, VmReading


class Counters:
    """Counters that are there, or are not."""

    fresh_for = 1.0

    def __init__(self, found: Snapshot | None) -> None:
        self.found = found
        self.asked = 0
        self.swept_at = found.monotonic if found else None

    def newest(self) -> Snapshot:
        self.asked += 1
        if self.found is None:
            raise exceptions.NotMounted(path="/sys/fs/resctrl", mend="mount it")
        return self.found


def counters(*vms: VmReading, age: float = 0.0) -> Any:
    return Counters(replace(counted(*vms), monotonic=time.monotonic() - age))


@pytest.fixture
def agent() -> Any:
    """What of an agent is asked for here."""
    return SimpleNamespace(
        snapshot=snapshot(),
        health=Health(looked_at=time.monotonic() - 3, unserved={"u1": "no PID file", "u2": "no PID file"}),
        started=time.monotonic() - 60,
        pass_times=PassTimes(),
        connection=SimpleNamespace(is_connected=True),
        placement=SimpleNamespace(state=Told()),
        flavors=SimpleNamespace(is_on=False, error="", waiting=0),
        unanswered=lambda: None,
    )


def test_what_the_agent_knows_is_published_as_plain_values(agent: Any) -> None:
    found = published(agent, Counters(None))
    assert found.vms == {UUID: VmState(UUID, "gold", "p", "c4", "kept", "", {0: 4})}
    assert found.caches[0] == CacheState(11, 11 << 20, 5, 5)
    assert found.groups == {"default": 1, "vm": 1, "class": 0, "foreign": 0}
    assert (found.closids, found.closids_used, found.rmids, found.rmids_used) == (16, 2, 32, 2)
    assert (found.resctrl, found.libvirt) == (True, True)


def test_a_reason_is_one_word(agent: Any) -> None:
    agent.snapshot = with_record(agent.snapshot, allocation=Allocation(PromiseState.PENDING, reason=NO_CACHE))
    assert published(agent, Counters(None)).vms[UUID].reason == "no-cache"
    assert published(agent, Counters(None)).vms[UUID].ways == {}


def test_without_resctrl_its_resources_are_left_out(agent: Any) -> None:
    agent.snapshot = replace(agent.snapshot, resctrl=None)
    found = published(agent, Counters(None))
    assert (found.resctrl, found.closids, found.groups, found.caches) == (False, 0, {}, {})


def test_a_libvirt_that_hangs_is_not_up(agent: Any) -> None:
    agent.unanswered = lambda: "virConnectListAllDomains"
    assert not published(agent, Counters(None)).libvirt


def test_what_openstack_was_told_is_published_where_it_is_told_anything(agent: Any) -> None:
    assert (published(agent, Counters(None)).placement, published(agent, Counters(None)).nova) == (None, None)
    agent.placement.state = Told("Placement", error="can't be reached", failures=3)
    agent.flavors = SimpleNamespace(is_on=True, error="", waiting=2)
    found = published(agent, Counters(None))
    assert (found.placement, found.placement_failures, found.inventories) == (False, 3, {})
    assert (found.nova, found.flavors_unknown) == (True, 2)
    agent.placement.state = Told("Placement", told=Capacity(9, 9, 1, 15), at=1.0)
    found = published(agent, Counters(None))
    assert found.placement and found.inventories == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_a_scrape_has_counters_states_and_the_process(agent: Any) -> None:
    metrics = Metrics(agent, counters(vm((4096, 1, 1), uuid=UUID)))
    content_type, text = metrics.answer("")
    assert content_type.startswith("text/plain; version=")
    for name in ("vmqos_vm_llc_occupancy_bytes{", "vmqos_vm_state{", "process_cpu_seconds_total "):
        assert f"\n{name}" in text.decode()


def test_a_client_that_prefers_openmetrics_gets_it(agent: Any) -> None:
    metrics = Metrics(agent, counters())
    content_type, text = metrics.answer("application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_a_scrape_without_counters_is_answered_all_the_same(agent: Any) -> None:
    text = Metrics(agent, Counters(None)).answer("")[1].decode()
    assert "vmqos_vm_state{" in text
    assert "vmqos_vm_llc_occupancy_bytes{" not in text


def values(text: bytes) -> dict[str, float]:
    """The samples without labels."""
    lines = (line.split() for line in text.decode().splitlines() if not line.startswith("#"))
    return {line[0]: float(line[1]) for line in lines if "{" not in line[0]}


def test_each_part_tells_its_age_and_what_was_never_done_is_as_old_as_the_agent(agent: Any) -> None:
    told = values(Metrics(agent, counters(age=1.5)).answer("")[1])
    assert 3 <= told["vmqos_vms_look_age_seconds"] < 10
    assert 60 <= told["vmqos_pass_age_seconds"] < 70
    assert 1.5 <= told["vmqos_sweep_age_seconds"] < 8
    assert told["vmqos_vms_unserved"] == 2
    assert values(Metrics(agent, Counters(None)).answer("")[1])["vmqos_sweep_age_seconds"] >= 60


def test_counters_that_stand_still_are_not_told_as_if_they_counted(agent: Any) -> None:
    text = Metrics(agent, counters(vm((4096, 1, 1), uuid=UUID), age=20.0)).answer("")[1].decode()
    assert "vmqos_vm_llc_occupancy_bytes{" not in text
    assert text.count('reason="no-sweep"') == 3
    assert values(text.encode())["vmqos_sweep_age_seconds"] >= 20


def test_scrapes_at_the_same_time_share_one_text(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = counters()
    metrics = Metrics(agent, found)
    assert len({metrics.answer("") for _ in range(20)}) == 1
    assert found.asked == 1
    assert metrics.answer("application/openmetrics-text; version=1.0.0")[1].endswith(b"# EOF\n"), "of the same format"
    monkeypatch.setattr("vmqos.gateway.metrics.SHARED_FOR", 0.0)
    metrics.answer("")
    assert found.asked == 3
