# SPDX-License-Identifier: Apache-2.0
"""What gateways told Prometheus during the last minutes, as Prometheus keeps it.

A test can't wait for ten minutes. So the samples are written as OpenMetrics, of which promtool makes blocks of
Prometheus's database, and Prometheus is started on that. It is asked what it knows of one moment, however long the
tests take.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.openstack.servers.prometheus import Prometheus, promtool
from tools.lab.workspace import Workspace

SCRAPE_SECONDS = 30
SECONDS = 900
"""How far back the samples go."""
AGE = 5
"""Seconds between the newest scrape and the moment that Prometheus is asked about."""


def vm_uuid(name: str) -> str:
    """The UUID of a VM of this name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def always(ago: int) -> bool:
    """A pair that was found in each scrape."""
    return ago >= 0


def during(first: int, last: int) -> Callable[[int], bool]:
    """A pair that was found from so many seconds before the newest scrape to so many."""
    return lambda ago: last <= ago <= first


@dataclass(frozen=True, slots=True)
class Told:
    """A pair of VMs by name, and how many seconds before the newest scrape it was told."""

    culprit: str
    victim: str
    slower: float
    told: Callable[[int], bool] = always
    cause: str = "cache"


def start(workspace: Workspace, pairs: Iterable[Told], vms: dict[str, tuple[str, str]], moment: int) -> Prometheus:
    """Start a Prometheus that knows this.

    :param vms: flavor and policy by the VM's name.
    :param moment: seconds since 1970: what it is asked about.
    """
    newest = moment - AGE
    ages = range(SECONDS, -1, -SCRAPE_SECONDS)
    lines = ["# TYPE vmqos_vm_info gauge"]
    for name, (flavor, policy) in vms.items():
        labels = f'uuid="{vm_uuid(name)}",name="{name}",project="p",flavor="{flavor}",policy="{policy}",group=""'
        lines += [f"vmqos_vm_info{{{labels}}} 1 {newest - ago}" for ago in ages]
    lines.append("# TYPE vmqos_vm_neighbour_slowdown_ratio gauge")
    for pair in pairs:
        labels = f'uuid="{vm_uuid(pair.victim)}",culprit="{vm_uuid(pair.culprit)}",cause="{pair.cause}"'
        series = f"vmqos_vm_neighbour_slowdown_ratio{{{labels}}}"
        lines += [f"{series} {pair.slower} {newest - ago}" for ago in ages if pair.told(ago)]
    return start_empty(workspace, _written(workspace, "\n".join([*lines, "# EOF", ""])))


def start_empty(workspace: Workspace, database: Path | None = None) -> Prometheus:
    """Start a Prometheus that scrapes nothing.

    :param database: the directory of what it knows; nothing unless it is named.
    """
    configuration = workspace.path / "prometheus.yml"
    configuration.write_text("scrape_configs: []\n")
    return Prometheus(workspace, configuration, database)


def _written(workspace: Workspace, text: str) -> Path:
    """A database of these samples."""
    file, database = workspace.path / "history", workspace.path / "database"
    file.write_text(text)
    database.mkdir()
    promtool("tsdb", "create-blocks-from", "openmetrics", file, database)
    return database
