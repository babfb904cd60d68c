# SPDX-License-Identifier: Apache-2.0
"""The agent ends and comes back while Nova goes on."""

from __future__ import annotations

import pytest

from tests.openstack.cloud.agreement import agree, disagreements
from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.conftest import MakeServer

pytestmark = pytest.mark.timeout(900)


def test_an_agent_that_comes_back_finds_what_came_and_went_meanwhile(cloud: Cloud, make_server: MakeServer) -> None:
    stays, goes, stops = (make_server("w2") for _ in range(3))
    agree(cloud)
    (node,) = cloud.nodes
    node.agent.kill()
    try:
        cloud.api.compute.delete_server(goes)
        cloud.api.compute.stop_server(stops)
        cloud.wait_until_gone(goes)
        cloud.wait_for_status(stops, "SHUTOFF")
        comes = make_server("w4")
        told = "\n".join(disagreements(cloud, {}))
        assert comes.id in told and "resctrl" in told and "Placement" not in told
    finally:
        node.agent.start()
    agree(cloud)
    assert {server.status for server in cloud.api.compute.servers() if server.id in (stays.id, comes.id)} == {"ACTIVE"}
