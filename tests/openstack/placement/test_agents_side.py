# SPDX-License-Identifier: Apache-2.0
"""The gateway's thread and a real Placement: what is told, by whom, and what happens while it is away."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from openstack.config import loader
from oslo_config import cfg

from tests.openstack.placement.compute_node import ComputeNode
from tests.openstack.servers.keystone import PASSWORD, Keystone
from tests.openstack.servers.placement import Placement
from tests.unit.agent.serve.test_vms import snapshot
from tools.lab.processes import wait_until
from tools.lab.workspace import Workspace
from vmqos.agent.serve import capacity
from vmqos.allocation import Policy
from vmqos.extra_specs.resources import (
    CMT,
    L3_CAT,
    LLC_CLASSES,
    LLC_WAYS,
    SHARED_ROOM,
    TRAITS,
    is_resource_class,
    provider_name,
)
from vmqos.gateway.openstack.capacity import Capacity
from vmqos.gateway.openstack.placement import PlacementSync
from vmqos.openstack.placement import Placement as ResourceProviders
from vmqos.openstack.service import Service
from vmqos.openstack.withdrawal import withdraw

Configure = Callable[..., cfg.ConfigOpts]
FAST = {"retry_delay_min": 0.1, "retry_delay_max": 0.5}

PATIENCE = 120.0
"""Seconds until something must have happened that takes one or two on an idle machine."""


def found(floor: int = 2) -> Capacity:
    """What a pass of the agent finds.

    :param floor: ways that the default group keeps.
    """
    known = snapshot()
    assert known.resctrl is not None
    return Capacity.of(capacity.of(known.resctrl, Policy(default_ways_min=floor), known.requests))


def sync_of(conf: cfg.ConfigOpts) -> PlacementSync:
    sync = PlacementSync.of(conf)
    assert sync is not None
    return sync


@pytest.fixture
def start(configure: Configure) -> Iterator[Callable[..., PlacementSync]]:
    """Starts what the gateway starts, and hands it what the agent says."""
    running: list[PlacementSync] = []

    def begin(hostname: str, section: Mapping[str, object]) -> PlacementSync:
        sync = sync_of(configure(placement=section, agent=FAST))
        running.append(sync)
        sync.start()
        sync.offer(found(), hostname)
        return sync

    yield begin
    for sync in running:
        sync.stop()


def has_told(sync: PlacementSync) -> None:
    told = f"Placement being told: {sync.health}"
    wait_until(lambda: sync.health["told_at"] and not sync.health["error"], told, PATIENCE)


def has_failed(sync: PlacementSync, words: str) -> None:
    wait_until(lambda: words in (sync.health["error"] or ""), f"{words!r} as the reason", PATIENCE)


def test_what_a_pass_found_is_in_placement(
    placement: Placement, node: ComputeNode, start: Callable[..., PlacementSync]
) -> None:
    sync = start(node.hostname, placement.credentials)
    has_told(sync)
    # Of 11 ways two are the floor's, and the devices' two are that same floor.
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}
    assert set(node.of_child("traits")) == {L3_CAT, CMT, SHARED_ROOM}
    assert f"{node.hostname}_LLC" in sync.health["where"]
    sync.offer(found(floor=4), node.hostname)
    wait_until(lambda: sync.health["changes"] == 2, "the change in Placement", PATIENCE)
    assert node.totals()[LLC_WAYS] == 7
    assert sync.health["failures"] == 0


def test_an_agent_that_starts_before_nova_compute_waits_for_it(
    placement: Placement, start: Callable[..., PlacementSync]
) -> None:
    hostname = f"late-{uuid.uuid4()}"
    sync = start(hostname, placement.credentials)
    has_failed(sync, f"no resource provider {hostname}")
    node = ComputeNode(placement, hostname)
    has_told(sync)
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_a_placement_that_goes_and_comes_back_gets_what_changed_meanwhile(
    workspace: Workspace, start: Callable[..., PlacementSync]
) -> None:
    server = Placement(workspace)
    try:
        node = ComputeNode(server, "node")
        sync = start(node.hostname, {**server.credentials, "check_interval": 1})
        has_told(sync)
        server.stop()
        has_failed(sync, "Placement can't be reached")
        sync.offer(found(floor=4), node.hostname)
        server.start()
        has_told(sync)
        wait_until(lambda: node.totals()[LLC_WAYS] == 7, "the change in Placement", PATIENCE)
    finally:
        server.stop()


def test_what_somebody_takes_away_is_back_after_the_next_look(
    placement: Placement, node: ComputeNode, start: Callable[..., PlacementSync]
) -> None:
    sync = start(node.hostname, {**placement.credentials, "check_interval": 1})
    has_told(sync)
    assert node.child is not None
    placement.ask("DELETE", f"/resource_providers/{node.child['uuid']}")
    wait_until(
        lambda: node.child and node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}, "the provider being back", PATIENCE
    )


def test_what_was_withdrawn_while_the_agent_was_away_is_back_soon_after_it_answers(
    placement: Placement, node: ComputeNode, service: Service, start: Callable[..., PlacementSync]
) -> None:
    sync = start(node.hostname, placement.credentials)
    has_told(sync)
    sync.agent_is_away()
    name = provider_name(node.hostname)
    assert withdraw(ResourceProviders(service), name, is_resource_class, frozenset(TRAITS))
    assert node.totals() == {LLC_WAYS: 0, LLC_CLASSES: 0}
    sync.offer(found(), node.hostname)
    wait_until(lambda: node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}, "the inventories being back", PATIENCE)
    # Traits are told after the inventories.
    wait_until(lambda: set(node.of_child("traits")) == {L3_CAT, CMT, SHARED_ROOM}, "the traits being back", PATIENCE)


def test_the_role_service_and_a_password_are_enough(
    guarded_placement: Placement, keystone: Keystone, start: Callable[..., PlacementSync]
) -> None:
    node = ComputeNode(guarded_placement, f"node-{uuid.uuid4()}")
    has_told(start(node.hostname, keystone.credentials("vmqos")))
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_an_application_credential_is_enough(
    guarded_placement: Placement, keystone: Keystone, start: Callable[..., PlacementSync]
) -> None:
    node = ComputeNode(guarded_placement, f"node-{uuid.uuid4()}")
    has_told(start(node.hostname, keystone.application_credential("vmqos")))
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_credentials_of_another_section_are_enough(
    guarded_placement: Placement, keystone: Keystone, configure: Configure
) -> None:
    node = ComputeNode(guarded_placement, f"node-{uuid.uuid4()}")
    conf = configure(placement={"auth_section": "shared"}, shared=keystone.credentials("vmqos"), agent=FAST)
    sync = sync_of(conf)
    sync.start()
    sync.offer(found(), node.hostname)
    has_told(sync)
    sync.stop()
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_a_cloud_of_clouds_yaml_is_enough(
    guarded_placement: Placement,
    keystone: Keystone,
    start: Callable[..., PlacementSync],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # openstacksdk looks in the directory in which it was imported first, among others.
    monkeypatch.setattr(loader, "CONFIG_FILES", [str(tmp_path / "clouds.yaml")])
    access = keystone.credentials("vmqos")
    kind, region = access.pop("auth_type"), access.pop("region_name")
    clouds: dict[str, Any] = {"clouds": {"lab": {"auth_type": kind, "region_name": region, "auth": access}}}
    (tmp_path / "clouds.yaml").write_text(yaml.safe_dump(clouds))
    node = ComputeNode(guarded_placement, f"node-{uuid.uuid4()}")
    has_told(start(node.hostname, {"os_cloud": "lab"}))
    assert node.totals() == {LLC_WAYS: 9, LLC_CLASSES: 15}


def test_a_cloud_that_is_not_there_is_named(start: Callable[..., PlacementSync]) -> None:
    has_failed(start("node", {"os_cloud": "nimbus"}), "os_cloud = nimbus")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"password": "wrong"}, "no way to Placement with what [placement] says"),
        ({"region_name": "Atlantis"}, "no way to Placement with what [placement] says"),
        ({"auth_type": "magic"}, "no way to Placement with what [placement] says"),
        ({"auth_url": "http://127.0.0.1:1/v3"}, "Placement can't be reached"),
        ({"endpoint_override": "http://127.0.0.1:1"}, "Placement can't be reached"),
    ],
    ids=["password", "region", "plugin", "keystone", "placement"],
)
def test_what_is_wrong_with_the_section_is_told_and_tried_again(
    guarded_placement: Placement,
    keystone: Keystone,
    start: Callable[..., PlacementSync],
    change: Mapping[str, str],
    words: str,
) -> None:
    sync = start("node", {**keystone.credentials("vmqos"), **change})
    has_failed(sync, words)
    assert PASSWORD not in (sync.health["error"] or "")
    wait_until(lambda: sync.health["failures"] > 1, "another try", PATIENCE)


def test_a_user_without_the_role_is_told_what_is_missing(
    guarded_placement: Placement, keystone: Keystone, start: Callable[..., PlacementSync]
) -> None:
    sync = start("node", keystone.credentials("guest", role="reader"))
    has_failed(sync, "with 403")
    assert "the user of [placement] needs more rights" in (sync.health["error"] or "")


def test_placement_itself_refuses_strangers(guarded_placement: Placement) -> None:
    answer = httpx.get(f"{guarded_placement.endpoint}/resource_providers", headers={"X-Auth-Token": "admin"})
    assert answer.status_code == 401, "else these tests prove nothing"
