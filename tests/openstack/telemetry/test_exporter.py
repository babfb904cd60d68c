# SPDX-License-Identifier: Apache-2.0
"""The meters of what instances execute, in Ceilometer's own polling task and exporter, without its service."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ceilometer import service
from ceilometer.compute.discovery import NovaLikeServer
from ceilometer.polling import prom_exporter
from ceilometer.polling.manager import PollingTask
from stevedore.extension import Extension

from ceilometer_pollster import pollsters
from tests.openstack.telemetry import counting_agent

ONE, OTHER = "0c8e5d1e-7b1d-4d5f-9a6b-1e2f3a4b5c6d", "38c43823-3651-469c-b344-166d1c87d77b"
SOURCE = SimpleNamespace(name="vmqos", resources=[], discovery=[], group_for_coordination="")


class Manager:
    """What a polling task asks of the service.

    :ivar instances: those that are discovered.
    """

    keystone = hashrings = partition_coordinator = None

    def __init__(self, conf: Any) -> None:
        self.conf = conf
        self.instances: list[NovaLikeServer] = []

    def discover(self, methods: list[str], _cache: Any) -> list[NovaLikeServer]:
        assert methods == ["local_instances"]
        return list(self.instances)

    def heartbeat(self, *_: Any) -> None:
        """Nobody listens."""


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    conf = service.prepare_service([], [])
    conf.set_override("enable_prometheus_exporter", True, "polling")
    conf.set_override("enable_notifications", False, "polling")
    made = Manager(conf)
    pollsters.options.register(conf)
    conf.set_override("agent_socket", str(tmp_path / "agent.sock"), "vmqos")
    return made


def instance(uuid: str) -> NovaLikeServer:
    flavor = {"id": "f", "name": "gold", "vcpus": 1, "ram": 1, "disk": 1, "ephemeral": 0, "swap": 0}
    about = {"OS-EXT-SRV-ATTR:instance_name": f"instance-{uuid[:2]}", "OS-EXT-STS:vm_state": "active"}
    image = {"id": "i", "links": []}
    told = {"metadata": {}, "user_id": "u", "tenant_id": "p", "hostId": "h", "image": image, "flavor": flavor}
    return NovaLikeServer(id=uuid, name=uuid, status="active", created="", **told, **about)


def shown() -> set[str]:
    """The instances of which the exporter has instructions."""
    metric = prom_exporter.CEILOMETER_REGISTRY._names_to_collectors.get("ceilometer_perf_instructions")
    samples = [] if metric is None else next(iter(metric.collect())).samples
    return {sample.labels["resource"] for sample in samples}


def test_the_exporter_forgets_each_instance_that_is_gone_the_last_one_too(manager: Manager, tmp_path: Path) -> None:
    task = PollingTask(manager)
    pollster = pollsters.Instructions(manager.conf)
    task.add(Extension(pollster.meter.pollster, None, None, pollster), SOURCE)
    counted = {uuid: counting_agent.counted(4, 3, 2, 1) for uuid in (ONE, OTHER)}
    with counting_agent.on(tmp_path / "agent.sock", counted):
        for discovered in ({ONE, OTHER}, {OTHER}, set(), {ONE}):
            manager.instances = [instance(uuid) for uuid in discovered]
            task.poll_and_notify()
            assert shown() == discovered


def test_an_exporter_that_forgets_nothing_has_the_samples_too(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of Ceilometer 24 and 25."""
    monkeypatch.delattr(prom_exporter, "purge_stale_metrics")
    monkeypatch.setattr(pollsters, "_PURGE", None)
    pollster = pollsters.Instructions(manager.conf)
    manager.instances = [instance(ONE)]
    with counting_agent.on(tmp_path / "agent.sock", {ONE: counting_agent.counted(4, 3, 2, 1)}):
        assert pollster.default_discovery == "local_instances"
        (sample,) = pollster.get_samples(manager, {}, manager.instances)
    assert (sample.name, sample.volume) == ("perf.instructions", 3)
