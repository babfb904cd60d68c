# SPDX-License-Identifier: Apache-2.0
"""What servers hold in Placement when something went wrong around it: found, mended, and never in the way of Nova."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.openstack.cloud.agreement import agree, disagreements
from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.conftest import MakeServer
from tests.openstack.servers.process import script
from vmqos.extra_specs.resources import LLC_CLASSES, LLC_WAYS

pytestmark = pytest.mark.timeout(900)


def found(cloud: Cloud, *arguments: str, clean: bool) -> list[dict[str, Any]]:
    """What a command of ``vmqos placement`` prints; ``clean``: whether it is to end with 0."""
    command = [str(script("vmqos")), "placement", *arguments, "-f", "json"]
    # What it prints comes out where it ends with 0 only; the shell sees to that.
    said = cloud.run("sh", "-c", f"{' '.join(command)}; test $? -eq {int(not clean)}")
    rows: list[dict[str, Any]] = json.loads(said)
    return rows


def test_a_host_whose_agent_is_away_gets_no_server_with_a_promise_and_loses_none(
    cloud: Cloud, make_server: MakeServer
) -> None:
    server = make_server("w2")
    agree(cloud)
    (node,) = cloud.nodes
    node.agent.kill()
    try:
        cloud.run(script("vmqos"), "--config-file", node.agent.config_file, "placement", "withdraw")
        refused = make_server("w2", status="ERROR")
        assert "No valid host was found" in refused.fault["message"]
        make_server("plain")
        assert "Placement" not in "\n".join(disagreements(cloud, {}))
        # What it holds goes with it through a stop and a start, as long as it lives.
        cloud.api.compute.stop_server(server)
        cloud.wait_for_status(server, "SHUTOFF")
        cloud.api.compute.start_server(server)
        cloud.wait_for_status(server, "ACTIVE")
    finally:
        node.agent.start()
    cloud.api.compute.delete_server(refused)
    cloud.wait_until_gone(refused)
    agree(cloud)
    inventories = cloud.of_cache(node, "inventories")
    cloud.wait_for(
        lambda: cloud.of_cache(node, "inventories")[LLC_WAYS]["reserved"] == 0, f"the ways being back: {inventories}"
    )
    make_server("w2")
    agree(cloud)


def test_what_lacks_a_claim_gets_it_what_is_left_over_goes_and_a_resize_is_left_alone(
    cloud: Cloud, make_server: MakeServer
) -> None:
    compute = cloud.api.compute
    (node,) = cloud.nodes
    older = compute.create_flavor(name="older", ram=64, vcpus=1, disk=0)
    orphan = str(uuid4())
    try:
        cloud.run(script("vmqos"), "flavor", "set", "older", "--cache-ways", "2", "--filter-only")
        silent, resized = make_server("older"), make_server("w2")
        compute.resize_server(resized, compute.find_flavor("w4"))
        cloud.wait_for_status(resized, "VERIFY_RESIZE")
        child = cloud.cache(node.hostname)
        assert child is not None
        body = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
        left = {child["uuid"]: {"resources": {LLC_WAYS: 1, LLC_CLASSES: 1}}}
        cloud.placement.ask("PUT", f"/allocations/{orphan}", {**body, "allocations": left})

        rows = found(cloud, "audit", clean=False)
        assert {row["consumer"]: row["problem"] for row in rows} == {orphan: "orphan", silent.id: "missing"}
        assert {row["result"] for row in found(cloud, "heal", "--dry-run", clean=True)} == {"would mend"}
        assert {row["result"] for row in found(cloud, "heal", clean=True)} == {"mended"}
        assert found(cloud, "audit", clean=True) == []
        agree(cloud, held={resized.id: 2})
        compute.confirm_server_resize(resized)
        cloud.wait_for_status(resized, "ACTIVE")
        agree(cloud)
        compute.delete_server(silent)
        cloud.wait_until_gone(silent)
        agree(cloud)
    finally:
        # It is not there where the command removed it.
        with suppress(httpx.HTTPStatusError):
            cloud.placement.ask("DELETE", f"/allocations/{orphan}")
        compute.delete_flavor(older)
