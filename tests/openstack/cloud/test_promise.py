# SPDX-License-Identifier: Apache-2.0
"""One server with two ways of its own, from the flavor to the samples, as an operator has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ceilometer_pollster.meters import METERS
from tests.openstack.cloud.agreement import agree, promise_in_xml
from tests.openstack.cloud.cloud import IMAGE, Cloud
from tests.openstack.cloud.node import Node
from tests.openstack.servers.ceilometer import Notification, Polling
from tools.lab import outside_check
from tools.lab.outside_check import Promise
from tools.lab.workspace import cgroups

pytestmark = pytest.mark.timeout(900)

FLAVOR, SERVER = "gold", "db-1"
PROPERTIES = ("hw:cache_ways=2", "resources:CUSTOM_LLC_WAYS=2", "resources:CUSTOM_LLC_CLASSES=1")


@pytest.fixture
def samples(cloud: Cloud) -> Iterator[Path]:
    """Where Ceilometer's agents publish what they poll of the compute node, one sample a line."""
    (node,) = cloud.nodes
    path = cloud.workspace.path / "samples.json"
    path.touch()
    bus = {"DEFAULT": {"transport_url": cloud.bus.url()}}
    notification = Notification(cloud.workspace, bus, [f"file://{path}?json"])
    polling = Polling(
        cloud.workspace,
        resctrl=node.simulator.root,
        libvirt_uri=node.libvirt.uri,
        further={**bus, "polling": {"enable_notifications": True}},
    )
    yield path
    polling.stop()
    notification.stop()
    for log in (polling.said, notification.said):
        print(f"--- {log[-4000:]}")


@pytest.fixture
def _named(cloud: Cloud) -> Iterator[None]:
    """Removes what a test that fails leaves."""
    yield
    compute = cloud.api.compute
    if server := compute.find_server(SERVER):
        compute.delete_server(server)
        cloud.wait_until_gone(server)
    if flavor := compute.find_flavor(FLAVOR):
        compute.delete_flavor(flavor)


def what_is_left(cloud: Cloud, node: Node) -> dict[str, object]:
    """All that a server has on a host, and what Placement counts of it."""
    root = node.simulator.root
    name = node.workspace.path.name
    return {
        "groups": sorted(path.name for directory in (root, root / "mon_groups") for path in directory.glob("vmqos.*")),
        "default group": (root / "schemata").read_text(),
        "domains": sorted(node.domains()),
        "cgroups": sorted(path for path in cgroups() if name in path.parent.parts and "qemu" in path.name),
        "instances": sorted(path.name for path in cloud.nova.instances.iterdir() if len(path.name) == 36),
        "usages": cloud.of_cache(node, "usages"),
    }


def lasting_tasks(node: Node, uuid: str) -> dict[int, str]:
    """A server's tasks without QEMU's workers, which come and go."""
    return {tid: name for tid, name in node.tasks(uuid).items() if name != "worker"}


def of_server(samples: Path, uuid: str) -> dict[str, dict[str, Any]]:
    """A server's last sample of each meter."""
    # Ceilometer may be writing the last line.
    *lines, _ = samples.read_text().split("\n")
    told = [json.loads(line) for line in lines]
    return {sample["name"]: sample for sample in told if sample["resource_id"] == uuid}


def test_two_ways_in_a_flavor_are_the_server_s_own_are_counted_are_measured_and_are_given_back(
    cloud: Cloud, samples: Path, _named: None
) -> None:
    (node,) = cloud.nodes
    before = what_is_left(cloud, node)
    cloud.client("flavor", "create", FLAVOR, "--ram", "64", "--vcpus", "2", "--disk", "0")
    cloud.client("flavor", "set", FLAVOR, *(word for each in PROPERTIES for word in ("--property", each)))
    made = cloud.client(
        *("server", "create", SERVER, "--flavor", FLAVOR, "--image", IMAGE, "--nic", "none", "--wait", "-f", "json")
    )
    uuid = json.loads(made)["id"]
    agree(cloud)

    assert promise_in_xml(node.domains()[uuid].XMLDesc()) == 2
    tasks = lasting_tasks(node, uuid)
    assert {name.partition("/")[0] for name in tasks.values()} >= {"CPU 0", "CPU 1"}
    root = node.simulator.root
    assert tasks.keys() <= {int(line) for line in (root / f"vmqos.{uuid}" / "tasks").read_text().split()}
    promise = Promise(uuid, SERVER, 2, True, tasks)
    findings = outside_check.check(root, [promise], outside_check.caches_with_cpus(node.simulator.sysfs))
    assert all(finding.good for finding in findings), findings

    allocated = cloud.placement.ask("GET", f"/allocations/{uuid}")["allocations"]
    child = cloud.cache(node.hostname)
    assert child is not None
    assert allocated[child["uuid"]]["resources"] == {"CUSTOM_LLC_WAYS": 2, "CUSTOM_LLC_CLASSES": 1}

    meters = {meter.name for meter in METERS}
    cloud.wait_for(lambda: of_server(samples, uuid).keys() >= meters, "samples of every meter")
    told = of_server(samples, uuid)
    assert told["cpu_l3_cache.ways"]["volume"] == 2
    assert told["cpu_l3_cache"]["volume"] <= told["cpu_l3_cache.allocated"]["volume"]
    assert told["cpu_l3_cache"]["resource_metadata"]["class"] == f"vmqos.{uuid}"

    cloud.client("server", "delete", "--wait", uuid)
    cloud.client("flavor", "delete", FLAVOR)
    agree(cloud)
    # The default group has the ways back a moment after the group is gone.
    cloud.wait_for(lambda: what_is_left(cloud, node) == before, f"all being as before: {before}")
