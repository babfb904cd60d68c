# SPDX-License-Identifier: Apache-2.0
"""The provider that an agent keeps in Placement, where compute nodes get other names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.nova_plugin.clouds import Placement as Server
from vmqos.cloud import provider_sync
from vmqos.cloud.placement import Inventory, Placement
from vmqos.cloud.provider_sync import Wanted
from vmqos.cloud.service import Service
from vmqos.conf import loader
from vmqos.openstack.extra_specs import resources


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
