# SPDX-License-Identifier: Apache-2.0
"""One flavor of each family, on two hosts of which each can do what the other can't."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.conftest import MakeServer
from tests.openstack.cloud.node import Node
from tests.openstack.servers.process import script
from tools.lab.workspace import Workspace

pytestmark = pytest.mark.timeout(900)

ANY = ("compute-1", "compute-2")
"""Cascade Lake, whose bandwidth is limited by per cent; and the one of this module."""

PINNED = {"hw:cpu_policy": "dedicated"}

FAMILIES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "vcpus": ({"hw:cache_ways": "2", "hw:cache_vcpus": "1"}, ANY),
    "cap": ({"hw:cache_ways": "3", "hw:cache_policy": "shared"}, ANY),
    "percent": ({"hw:mem_bandwidth_percent": "50"}, ("compute-1",)),
    "mbps": ({"hw:mem_bandwidth_mbps": "4000"}, ("compute-2",)),
    "code-and-data": ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "2"}, ("compute-2",)),
    "l2": ({"hw:l2_cache_ways": "4", **PINNED}, ("compute-2",)),
    "l2-that-floats": ({"hw:l2_cache_ways": "4"}, ()),
    "half-of-split": ({"hw:cache_code_ways": "1", "hw:cache_data_ways": "2", "hw:mem_bandwidth_percent": "50"}, ()),
    "vcpu-too-many": ({"hw:cache_ways": "2", "hw:cache_vcpus": "2"}, ()),
}
"""Flavors, and the hosts that can keep their promises."""


@pytest.fixture(scope="module", autouse=True)
def second(cloud: Cloud) -> Iterator[Node]:
    """A host with L2 CAT, mounted with cdp and mba_MBps, and a CPU to pin to."""
    with Workspace() as workspace:
        machine = ("sapphire-rapids", "cdp,mba_MBps")
        cpus = {"cpu_dedicated_set": "0", "cpu_shared_set": "1"}
        node = Node("compute-2", workspace, hostname="compute-2", machine=machine, compute=cpus)
        node.start()
        cloud.add(node)
        yield node
        cloud.remove(node)


@pytest.fixture(scope="module")
def flavors(cloud: Cloud) -> Iterator[None]:
    """The flavors."""
    compute = cloud.api.compute
    with contextlib.ExitStack() as made:
        for name, (specs, _) in FAMILIES.items():
            flavor = compute.create_flavor(name=name, ram=64, vcpus=2 if "vcpu" in name else 1, disk=0)
            made.callback(compute.delete_flavor, flavor)
            # The command would refuse a vCPU that the flavor does not have; other ways to it do not.
            vcpus = {key: value for key, value in specs.items() if key == "hw:cache_vcpus"}
            compute.create_flavor_extra_specs(flavor, {key: specs[key] for key in specs.keys() - vcpus.keys()})
            promise = next(key for key in specs if key != "hw:cpu_policy")
            # It asks Placement for what all of them take.
            cloud.run(script("vmqos"), "flavor", "set", name, OPTIONS[promise], specs[promise])
            if vcpus:
                compute.create_flavor_extra_specs(flavor, vcpus)
        yield


OPTIONS = {
    "hw:cache_ways": "--cache-ways",
    "hw:cache_code_ways": "--code-ways",
    "hw:l2_cache_ways": "--l2-ways",
    "hw:mem_bandwidth_percent": "--bandwidth-percent",
    "hw:mem_bandwidth_mbps": "--bandwidth-mbps",
}


def is_kept(node: Node, server: Any) -> bool:
    """Whether the agent says so; a server that has just become active may be new to it."""
    with contextlib.suppress(OSError, RuntimeError):
        return bool(node.agent.get(f"/v1/vms/{server.id}")["state"] == "kept")
    return False


@pytest.mark.parametrize("family", FAMILIES)
def test_a_server_lands_on_a_host_that_keeps_its_promise_or_on_none(
    cloud: Cloud, make_server: MakeServer, flavors: None, family: str
) -> None:
    _, hosts = FAMILIES[family]
    if not hosts:
        refused = make_server(family, status="ERROR")
        assert "No valid host was found" in refused.fault["message"]
        return
    server = make_server(family)
    assert server.compute_host in hosts
    (node,) = (node for node in cloud.nodes if node.name == server.compute_host)
    cloud.wait_for(lambda: is_kept(node, server), f"{family} being kept on {node.name}", 60)
