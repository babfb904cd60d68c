# SPDX-License-Identifier: Apache-2.0
"""A host with one CLOSID left: what Placement claimed for is kept there, and never waits for a CLOSID."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.conftest import MakeServer
from tests.openstack.cloud.node import Node
from tests.openstack.servers.process import script
from tools.lab.workspace import Workspace
from vmqos.extra_specs.resources import LLC_CLASSES, LLC_SHARED

pytestmark = pytest.mark.timeout(900)

REFUSED = "No valid host was found"
FIRST, SECOND = (f"{LLC_SHARED}WAYS{ways}" for ways in (3, 5))


@pytest.fixture(scope="module")
def listing(cloud: Cloud) -> Iterator[Node]:
    """A host that lists two classes."""
    with Workspace() as workspace:
        options = {"allocation": {"shared_classes": "ways3, ways5", "other_classes": 0}}
        node = Node("compute-3", workspace, hostname="compute-3", options=options)
        node.start()
        cloud.add(node)
        yield node
        cloud.remove(node)


@pytest.fixture(scope="module")
def caps(cloud: Cloud, listing: Node) -> Iterator[tuple[str, str]]:
    """Two flavors of these classes, which ask Placement for them."""
    cloud.wait_for(lambda: {FIRST, SECOND} <= offered(cloud, listing), "the classes being offered", 60)
    made = []
    for ways in (3, 5):
        made.append(cloud.api.compute.create_flavor(name=f"cap{ways}", ram=64, vcpus=1, disk=0))
        command = (script("vmqos"), "flavor", "set", f"cap{ways}", "--cache-ways", ways, "--policy", "shared")
        cloud.run(*map(str, command))
    yield "cap3", "cap5"
    for flavor in made:
        cloud.api.compute.delete_flavor(flavor)


def crowd(node: Node) -> Path:
    """Have another program take all CLOSIDs but one; the result is a control group of it."""
    root = node.simulator.root
    closids = min(int(path.read_text()) for path in root.glob("info/*/num_closids"))
    # The default group has one.
    groups = [root / f"other-{number}" for number in range(closids - 2)]
    for group in groups:
        group.mkdir()
        # One way, lest they leave none for VMs.
        line = next(line for line in (group / "schemata").read_text().splitlines() if "L3:" in line)
        (group / "schemata").write_text(re.sub(r"=[0-9a-f]+", "=1", line.strip()) + "\n")
    return groups[0]


def offered(cloud: Cloud, node: Node) -> set[str]:
    """The resource classes of which a host has something to give."""
    return {name for name, amount in capacity(cloud, node).items() if amount}


def capacity(cloud: Cloud, node: Node) -> dict[str, int]:
    """How much of each resource class can be had of a host."""
    found = cloud.of_cache(node, "inventories")
    return {name: inventory["total"] - inventory["reserved"] for name, inventory in found.items()}


def kept(cloud: Cloud, node: Node, server: Any) -> None:
    """Wait until the server's promise is kept on that host."""
    assert server.compute_host == node.name
    said: list[Any] = []

    def is_kept() -> bool:
        try:
            said[:] = [node.agent.get(f"/v1/vms/{server.id}")]
        except (OSError, RuntimeError) as error:
            # A server that has just become active may be new to the agent.
            said[:] = [str(error)]
            return False
        return bool(said[0]["state"] == "kept")

    try:
        cloud.wait_for(is_kept, f"{server.name} being kept", 60)
    except TimeoutError:
        raise AssertionError(said) from None


def test_with_one_closid_left_only_the_class_that_has_it_gets_servers_and_all_of_them_are_kept(
    cloud: Cloud, make_server: MakeServer, listing: Node, caps: tuple[str, str]
) -> None:
    first, second = caps
    group = crowd(listing)
    # A new group of another program's has every way for a moment: then no class is offered.
    cloud.wait_for(
        lambda: offered(cloud, listing) & {FIRST, SECOND, LLC_CLASSES} == {FIRST}, "one class being left", 60
    )
    served = [make_server(first)]
    for flavor in (second, second):
        assert REFUSED in make_server(flavor, status="ERROR").fault["message"]
    served.append(make_server(first))
    for server in served:
        kept(cloud, listing, server)
        claim = cloud.placement.ask("GET", f"/allocations/{server.id}")["allocations"]
        assert any(FIRST in held["resources"] for held in claim.values()), claim
    assert [path.name for path in listing.simulator.root.glob("vmqos.shared-*")] == ["vmqos.shared-ways3"]

    group.rmdir()
    cloud.wait_for(lambda: SECOND in offered(cloud, listing), "the second class being offered", 60)
    for flavor in (second, first):
        kept(cloud, listing, make_server(flavor))
    assert len(list(listing.simulator.root.glob("vmqos.shared-*"))) == 2
