# SPDX-License-Identifier: Apache-2.0
"""A host whose ways are given away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.openstack.cloud.agreement import agree
from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.conftest import MakeServer

pytestmark = pytest.mark.timeout(900)

REFUSED = "No valid host was found"


@pytest.fixture
def uncounted(cloud: Cloud) -> Iterator[str]:
    """A flavor that promises two ways, and asks Placement for none."""
    made = cloud.api.compute.create_flavor(name="uncounted", ram=64, vcpus=1, disk=0)
    cloud.api.compute.create_flavor_extra_specs(made, {"hw:cache_ways": "2"})
    yield "uncounted"
    cloud.api.compute.delete_flavor(made)


def told_of_resize(cloud: Cloud, server: Any) -> Iterator[str]:
    """What Nova keeps of a server's resizes."""
    for action in cloud.api.compute.server_actions(server):
        if action.action == "resize":
            told = cloud.api.compute.get_server_action(action.request_id, server)
            yield from (event.get("details") or "" for event in told.events)


def test_a_server_that_finds_no_ways_left_finds_no_valid_host_until_there_are(
    cloud: Cloud, make_server: MakeServer, uncounted: str
) -> None:
    first, _ = make_server("w4"), make_server("w4")
    agree(cloud)
    for flavor in ("w2", uncounted):
        refused = make_server(flavor, status="ERROR")
        assert REFUSED in refused.fault["message"]
    plain = make_server("plain")
    agree(cloud)
    cloud.api.compute.delete_server(first)
    cloud.wait_until_gone(first)
    make_server("w2")
    agree(cloud)
    cloud.api.compute.resize_server(plain, cloud.api.compute.find_flavor("w4"))
    cloud.wait_for(lambda: REFUSED in "".join(told_of_resize(cloud, plain)), "the resize being refused")
    cloud.wait_for_status(plain, "ACTIVE")
    agree(cloud)
