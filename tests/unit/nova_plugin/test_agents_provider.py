# SPDX-License-Identifier: Apache-2.0
"""The provider that an agent keeps in Placement, where compute nodes get other names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.unit.nova_plugin.clouds import LETS_GO
from tests.unit.nova_plugin.clouds import Placement as Server
from vmqos.conf import loader
from vmqos.extra_specs import resources
from vmqos.openstack import provider_sync
from vmqos.openstack.placement import Inventory, Placement
from vmqos.openstack.provider_sync import Wanted
from vmqos.openstack.service import Service


@pytest.fixture
def way(placement_url: str, tmp_path: Path) -> Placement:
    """The agent's way to Placement."""
    text = f"[placement]\nauth_type = admin_token\ntoken = admin\nendpoint = {placement_url}\n"
    (tmp_path / "vmqos.conf").write_text(text)
    return Placement(Service(loader.load(["--config-file", str(tmp_path / "vmqos.conf")]), "placement", "placement"))


def wanted(node: str) -> Wanted:
    return Wanted(
        compute_node=node,
        name=resources.provider_name(node),
        inventories={resources.LLC_WAYS: Inventory(8, max_unit=8), resources.LLC_CLASSES: Inventory(15)},
        traits=frozenset({resources.L3_CAT}),
        known_traits=frozenset(resources.TRAITS),
    )


def rename(placement: Server, node: str, name: str) -> None:
    placement.http.put(f"/resource_providers/{node}", json={"name": name}).raise_for_status()


def tree(placement: Server, node: str) -> dict[str, str]:
    """The names of a compute node's providers, and their UUIDs."""
    found = placement.http.get("/resource_providers", params={"in_tree": node}).raise_for_status().json()
    return {provider["name"]: provider["uuid"] for provider in found["resource_providers"]}


def test_a_compute_node_that_is_renamed_keeps_its_provider_and_all_that_servers_hold(
    placement: Server, way: Placement
) -> None:
    node = placement.compute_node(8)
    placement.allocate(node, ways=2)
    (cache,) = (uuid for uuid in tree(placement, node).values() if uuid != node)
    rename(placement, node, "renamed.example")
    done = provider_sync.synchronize(way, wanted("renamed.example"))
    assert done.changed
    assert tree(placement, node) == {"renamed.example": node, "renamed.example_LLC": cache}
    usages: Any = placement.http.get(f"/resource_providers/{cache}/usages").json()["usages"]
    assert usages == {resources.LLC_WAYS: 2, resources.LLC_CLASSES: 1}
    assert not provider_sync.synchronize(way, wanted("renamed.example"), done).changed


def test_a_provider_of_another_compute_node_is_left_alone(placement: Server, way: Placement) -> None:
    other, bare = placement.compute_node(4), placement.bare_node()
    before = tree(placement, other)
    rename(placement, bare, "bare.example")
    made = provider_sync.synchronize(way, wanted("bare.example")).provider
    assert tree(placement, other) == before
    assert tree(placement, bare) == {"bare.example": bare, "bare.example_LLC": made.uuid}
    placement.http.delete(f"/resource_providers/{made.uuid}").raise_for_status()


def test_servers_of_a_class_that_is_listed_no_more_keep_it_and_can_be_moved(placement: Server, way: Placement) -> None:
    node = placement.compute_node(8)
    rename(placement, node, "unlisted.example")
    shared = f"{resources.LLC_SHARED}WAYS3"
    plain = replace(wanted("unlisted.example"), withdrawn_prefix=resources.LLC_SHARED)
    listing = replace(plain, inventories={**plain.inventories, shared: Inventory(1000)})
    done = provider_sync.synchronize(way, listing)
    provider = done.provider.uuid
    servers = [str(uuid4()), str(uuid4())]
    held = {"allocations": {provider: {"resources": {shared: 1}}}, "project_id": "p", "user_id": "u"}
    for server in servers:
        placement.http.put(f"/allocations/{server}", json={**held, "consumer_generation": None}).raise_for_status()
    done = provider_sync.synchronize(way, plain, done)
    assert done.changed and not done.overdrawn
    assert node not in placement.candidates({shared: 1})
    migration = str(uuid4())
    left = {**held, "allocations": {}, "consumer_generation": 1}
    moved = {migration: {**held, "consumer_generation": None}, servers[0]: left}
    assert placement.http.post("/allocations", json=moved).status_code == (204 if LETS_GO else 409)
    usages: Any = placement.http.get(f"/resource_providers/{provider}/usages").json()["usages"]
    assert usages[shared] == 2
    placement.claimed([migration if LETS_GO else servers[0], servers[1]])


def test_no_max_unit_is_lowered_below_what_a_server_holds_which_nova_may_have_to_move(
    placement: Server, way: Placement
) -> None:
    node = placement.compute_node(8)
    rename(placement, node, "narrow.example")
    done = provider_sync.synchronize(way, wanted("narrow.example"))
    provider = done.provider.uuid
    servers = [str(uuid4()), str(uuid4())]
    for server, ways in zip(servers, (5, 2), strict=True):
        held = {provider: {"resources": {resources.LLC_WAYS: ways, resources.LLC_CLASSES: 1}}}
        body = {"allocations": held, "project_id": "p", "user_id": "u", "consumer_generation": None}
        placement.http.put(f"/allocations/{server}", json=body).raise_for_status()
    placement.claimed([servers[1]])

    def most() -> int:
        found = placement.http.get(f"/resource_providers/{provider}/inventories").raise_for_status().json()
        units: int = found["inventories"][resources.LLC_WAYS]["max_unit"]
        return units

    narrow = wanted("narrow.example")
    narrow = replace(narrow, inventories={**narrow.inventories, resources.LLC_WAYS: Inventory(8, max_unit=3)})
    done = provider_sync.synchronize(way, narrow, done)
    assert (done.changed, most()) == (True, 5)
    # Nova writes what a server holds once more, for the migration, when it moves the server.
    held = {provider: {"resources": {resources.LLC_WAYS: 5, resources.LLC_CLASSES: 1}}}
    migration = {"allocations": held, "project_id": "p", "user_id": "u", "consumer_generation": None}
    left = {"allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": 1}
    moved = str(uuid4())
    placement.http.post("/allocations", json={moved: migration, servers[0]: left}).raise_for_status()
    done = provider_sync.synchronize(way, narrow, done)
    assert (done.changed, most()) == (False, 5)
    placement.http.delete(f"/allocations/{moved}").raise_for_status()
    done = provider_sync.synchronize(way, narrow, done)
    assert (done.changed, most()) == (True, 3)
    assert not provider_sync.synchronize(way, narrow, done).changed
