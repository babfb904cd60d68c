# SPDX-License-Identifier: Apache-2.0
"""A server's life: in each of its states, flavor, allocation, description and group say the same."""

from __future__ import annotations

import pytest

from tests.openstack.cloud.agreement import agree
from tests.openstack.cloud.cloud import IMAGE, Cloud
from tests.openstack.cloud.conftest import MakeServer

pytestmark = pytest.mark.timeout(900)


def test_a_promise_lives_as_long_as_the_server_runs_and_its_allocation_as_long_as_the_server(
    cloud: Cloud, make_server: MakeServer
) -> None:
    plain, server = make_server("plain"), make_server("w2")
    agree(cloud)
    compute = cloud.api.compute
    compute.stop_server(server)
    cloud.wait_for_status(server, "SHUTOFF")
    agree(cloud)
    compute.start_server(server)
    cloud.wait_for_status(server, "ACTIVE")
    agree(cloud)
    (node,) = cloud.nodes
    before = node.tasks(server.id)
    compute.reboot_server(server, "HARD")
    cloud.wait_for_status(server, "ACTIVE")
    cloud.wait_for(lambda: not before.keys() & node.tasks(server.id).keys(), "another process")
    agree(cloud)
    for gone in (server, plain):
        compute.delete_server(gone)
        cloud.wait_until_gone(gone)
        agree(cloud)


def test_a_rebuilt_server_keeps_its_promise_with_another_process(cloud: Cloud, make_server: MakeServer) -> None:
    server = make_server("w2")
    (node,) = cloud.nodes
    before = node.tasks(server.id)
    cloud.api.compute.rebuild_server(server, cloud.api.image.find_image(IMAGE, ignore_missing=False).id)
    cloud.wait_for(lambda: not before.keys() & node.tasks(server.id).keys(), "another process")
    cloud.wait_for_status(server, "ACTIVE")
    agree(cloud)


@pytest.mark.parametrize(("answer", "flavor"), [("confirm", "w4"), ("revert", "w2")])
def test_a_resize_changes_the_promise_and_both_are_allocated_until_it_is_answered(
    cloud: Cloud, make_server: MakeServer, answer: str, flavor: str
) -> None:
    server = make_server("w2")
    compute = cloud.api.compute
    compute.resize_server(server, compute.find_flavor("w4"))
    cloud.wait_for_status(server, "VERIFY_RESIZE")
    agree(cloud, held={server.id: 2})
    {"confirm": compute.confirm_server_resize, "revert": compute.revert_server_resize}[answer](server)
    server = cloud.wait_for_status(server, "ACTIVE")
    assert server.flavor["original_name"] == flavor
    agree(cloud)


def test_a_shelved_server_holds_nothing_and_gets_all_back_when_it_returns(
    cloud: Cloud, make_server: MakeServer
) -> None:
    server = make_server("w4")
    agree(cloud)
    cloud.api.compute.shelve_server(server)
    cloud.wait_for_status(server, "SHELVED_OFFLOADED")
    agree(cloud)
    cloud.api.compute.unshelve_server(server)
    cloud.wait_for_status(server, "ACTIVE")
    agree(cloud)
