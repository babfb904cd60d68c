# SPDX-License-Identifier: Apache-2.0
"""Two compute nodes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from openstack.exceptions import BadRequestException

from tests.openstack.cloud.agreement import agree, disagreements
from tests.openstack.cloud.cloud import CDROM, Cloud
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


def test_a_live_migration_takes_the_promise_along(cloud: Cloud, make_server: MakeServer) -> None:
    server = make_server("w4", image=CDROM)
    before = host(cloud, server)
    cloud.api.compute.live_migrate_server(server, block_migration="auto")
    cloud.wait_for(lambda: host(cloud, server) != before, "the server on the other node")
    cloud.wait_for_status(server, "ACTIVE")
    agree(cloud)


def test_an_evacuated_server_has_its_promise_on_the_new_node_and_nothing_is_left_when_the_old_one_returns(
    cloud: Cloud, make_server: MakeServer, second: Node
) -> None:
    compute = cloud.api.compute
    server = next(server for server in (make_server("w4"), make_server("w4")) if host(cloud, server) == second.name)
    (service,) = compute.services(host=second.name)
    second.agent.kill()
    cloud.nova.stop_compute(second.name)
    second.domains()[server.id].destroy()
    compute.update_service_forced_down(service, forced=True)
    try:
        compute.evacuate_server(server)
        cloud.wait_for(lambda: host(cloud, server) == "compute-1", "the server on the node that is left")
        cloud.wait_for_status(server, "SHUTOFF")
        assert "compute-2" in "\n".join(disagreements(cloud, {})), "the server has left its domain and group behind"
        compute.start_server(server)
        cloud.wait_for_status(server, "ACTIVE")
    finally:
        cloud.nova.start_compute(second.name, second.libvirt)
        second.agent.start()

    def is_up() -> bool:
        # Nova refuses as long as the node has not looked at what was evacuated from it.
        with contextlib.suppress(BadRequestException):
            compute.update_service_forced_down(service, forced=False)
            return True
        return False

    cloud.wait_for(is_up, "the node being taken in again")
    agree(cloud)
