# SPDX-License-Identifier: Apache-2.0
"""Two compute nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.openstack.cloud.agreement import agree
from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.conftest import MakeServer
from tests.openstack.cloud.node import Node
from tools.lab.workspace import Workspace

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", autouse=True)
def second(cloud: Cloud) -> Iterator[Node]:
    """A second compute node for the tests of this module."""
    with Workspace() as workspace:
        node = Node("compute-2", workspace, hostname="compute-2")
        node.start()
        cloud.add(node)
        yield node
        cloud.remove(node)


def host(cloud: Cloud, server: Any) -> str:
    """The name of a server's node."""
    return str(cloud.api.compute.get_server(server).compute_host)


def test_each_server_lands_where_ways_are_left_until_none_are(cloud: Cloud, make_server: MakeServer) -> None:
    servers = [make_server("w4") for _ in range(4)]
    assert Counter(host(cloud, server) for server in servers) == {"compute-1": 2, "compute-2": 2}
    agree(cloud)
    refused = make_server("w2", status="ERROR")
    assert "No valid host was found" in refused.fault["message"]
    cloud.api.compute.delete_server(servers[2])
    cloud.wait_until_gone(servers[2])
    assert host(cloud, make_server("w2")) == servers[2].compute_host
    agree(cloud)


@pytest.mark.parametrize("answer", ["confirm", "revert"])
def test_a_migration_takes_the_promise_along(cloud: Cloud, make_server: MakeServer, answer: str) -> None:
    compute = cloud.api.compute
    server = make_server("w4")
    before = host(cloud, server)
    compute.migrate_server(server)
    cloud.wait_for_status(server, "VERIFY_RESIZE")
    after = host(cloud, server)
    assert {before, after} == {"compute-1", "compute-2"}
    agree(cloud, held={server.id: 4})
    {"confirm": compute.confirm_server_resize, "revert": compute.revert_server_resize}[answer](server)
    cloud.wait_for_status(server, "ACTIVE")
    assert host(cloud, server) == {"confirm": after, "revert": before}[answer]
    agree(cloud)
