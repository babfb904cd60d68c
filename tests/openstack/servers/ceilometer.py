# SPDX-License-Identifier: Apache-2.0
"""Ceilometer's polling agent for compute nodes, and its notification agent."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.openstack.servers import settings
from tests.openstack.servers.process import Server, answers, free_port, script
from tests.openstack.servers.settings import Settings
from tools.lab.workspace import CHECKOUT, Workspace

HOST = "compute-1"
INTERVAL = 1
"""Seconds between two polling cycles."""

Series = Mapping[str, float]
"""A meter's volumes by resource id."""


class Polling:
    """``ceilometer-polling --polling-namespaces compute`` with its exporter for Prometheus.

    :param resctrl: where resctrl is mounted.
    :param libvirt_uri: where the instances are.
    :param further: more settings, such as where the message bus is; without one there are no notifications.
    :param name: tells several of one workspace apart.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        resctrl: Path,
        libvirt_uri: str,
        further: Settings | None = None,
        name: str = "ceilometer-polling",
    ) -> None:
        directory = workspace.path / name
        directory.mkdir()
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/metrics"
        polling = yaml.safe_load((CHECKOUT / "etc" / "ceilometer" / "polling.yaml").read_text())
        polling["sources"][0]["interval"] = INTERVAL
        (directory / "polling.yaml").write_text(yaml.safe_dump(polling))
        configuration = settings.write(
            directory / "ceilometer.conf",
            {
                "DEFAULT": {
                    "host": HOST,
                    "libvirt_uri": libvirt_uri,
                    "pollsters_definitions_dirs": directory / "none",
                    "use_stderr": True,
                },
                "compute": {"instance_discovery_method": "libvirt_metadata"},
                "polling": {
                    "cfg_file": directory / "polling.yaml",
                    "enable_notifications": False,
                    "enable_prometheus_exporter": True,
                    "prometheus_listen_addresses": f"127.0.0.1:{port}",
                },
                "vmqos": {"resctrl_path": resctrl},
            },
            further or {},
        )
        command = [script("ceilometer-polling"), "--polling-namespaces", "compute", "--config-file", configuration]
        self._server = Server(workspace, directory, command)
        self._server.wait_until(partial(answers, port), "ceilometer-polling answering")

    @property
    def said(self) -> str:
        """Its log."""
        return self._server.said

    def samples(self) -> Iterator[Any]:
        """What the exporter shows now of our meters."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            yield from (sample for sample in family.samples if "counter" in sample.labels)

    def series(self, meter: str) -> Series:
        """A meter's volume of each instance."""
        return {one.labels["resource"]: one.value for one in self.samples() if one.labels["counter"] == meter}

    def stop(self) -> None:
        """End it."""
        self._server.stop()


class Notification:
    """``ceilometer-agent-notification``: from the message bus to a publisher.

    :param given: where the message bus and the publisher's server are.
    :param publishers: URLs, such as ``gnocchi://``.
    :param event_definitions: makes events of notifications by this file, instead of samples.
    """

    def __init__(
        self, workspace: Workspace, given: Settings, publishers: Sequence[str], event_definitions: Path | None = None
    ) -> None:
        directory = workspace.path / "ceilometer-notification"
        directory.mkdir()
        if event_definitions is not None:
            events = {
                "sources": [{"name": "all", "events": ["*"], "sinks": ["sink"]}],
                "sinks": [{"name": "sink", "publishers": list(publishers)}],
            }
            (directory / "event_pipeline.yaml").write_text(yaml.safe_dump(events))
        pipeline = {
            "sources": [{"name": "all", "meters": ["*"], "sinks": ["sink"]}],
            "sinks": [{"name": "sink", "publishers": list(publishers)}],
        }
        (directory / "pipeline.yaml").write_text(yaml.safe_dump(pipeline))
        own = {
            "DEFAULT": {"host": HOST, "use_stderr": True, "event_pipeline_cfg_file": directory / "event_pipeline.yaml"},
            "notification": {
                "pipelines": "meter" if event_definitions is None else "event",
                "batch_size": 8,
                "batch_timeout": 1,
            },
            "pipeline": {"pipeline_cfg_file": directory / "pipeline.yaml"},
            "event": {"definitions_cfg_file": event_definitions or "event_definitions.yaml"},
        }
        configuration = settings.write(directory / "ceilometer.conf", own, given)
        command = [script("ceilometer-agent-notification"), "--config-file", configuration]
        self._server = Server(workspace, directory, command)

    @property
    def said(self) -> str:
        """Its log."""
        return self._server.said

    def stop(self) -> None:
        """End it."""
        self._server.stop()


def upgrade(workspace: Workspace, given: Settings) -> None:
    """Run ``ceilometer-upgrade``, which makes the resource types in Gnocchi."""
    directory = workspace.path / "ceilometer-upgrade"
    directory.mkdir()
    configuration = settings.write(directory / "ceilometer.conf", given)
    Server(workspace, directory, [script("ceilometer-upgrade"), "--config-file", configuration]).run()
