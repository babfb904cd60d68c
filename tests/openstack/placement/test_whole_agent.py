# SPDX-License-Identifier: Apache-2.0
"""A whole agent, on a simulated resctrl and under a real libvirtd, beside a real Placement."""

from __future__ import annotations

import json
import subprocess
import urllib.request
import uuid
from typing import Any

import pytest

from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tests.openstack.placement.compute_node import ComputeNode
from tests.openstack.servers.placement import Placement
from tests.openstack.servers.process import free_port, script
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from vmqos.extra_specs.resources import (
    CMT,
    L3_CAT,
    LLC_CLASSES,
    LLC_OTHERS,
    LLC_WAYS,
    MBA,
    MBA_PERCENT,
    MBM,
    SHARED_FULL,
    SHARED_ROOM,
)
from vmqos.gateway.openstack.capacity import MEMBERS

EMPTY = {LLC_WAYS: 9, LLC_CLASSES: 5}
"""Cascade Lake: 11 ways less the floor's two, which are those of the devices; 8 CLOSIDs less the default group's, and
less two for classes that are not listed."""
TOLD = {**EMPTY, LLC_OTHERS: 2}
"""What the agent tells of it: the two classes that are not listed are an inventory too."""


def doctor(agent: Agent) -> dict[str, dict[str, Any]]:
    """What ``vmqos doctor`` finds, by what was looked at."""
    command = [script("vmqos"), f"--config-file={agent.config_file}", "doctor", "-f", "json"]
    said = subprocess.run(command, text=True, capture_output=True, check=False).stdout
    return {finding["title"]: finding for finding in json.loads(said)}


def metrics(agent: Agent, port: int) -> dict[str, float]:
    """The metrics without labels, and those of the inventories."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_placement_counts_what_resctrl_has_whatever_vms_come_and_go(
    placement: Placement, node: ComputeNode, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    port = free_port()
    section = {**placement.credentials, "hypervisor_hostname": node.hostname}
    agent = make_agent({"placement": section, "http": {"port": port}})
    agent.start()
    wait_for(lambda: node.child is not None and node.totals() == EMPTY, "the provider")
    # The gateway says what it has told once it has told all of it.
    wait_for(lambda: agent.gateway.get("/v1/health")["placement"]["inventories"] == TOLD, "all being told")
    assert set(node.of_child("traits")) == {L3_CAT, MBA, MBA_PERCENT, CMT, MBM, SHARED_ROOM}
    health = agent.gateway.get("/v1/health")
    assert node.of_child("inventories")[LLC_OTHERS]["total"] == TOLD[LLC_OTHERS]
    assert (health["placement"]["error"], health["placement"]["failures"]) == (None, 0)
    assert node.hostname in health["placement"]["where"]

    vm = make_vm({"hw:cache_ways": "4"})
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being served")
    capped = make_vm({"hw:cache_ways": "3", "hw:cache_policy": "shared"})
    wait_for(lambda: agent.get(f"/v1/vms/{capped.uuid}")["state"] == "kept", "the capped VM being served")
    # Its class has the pool keep a third way; its CLOSID is one of those that are left for classes.
    with_class = {**EMPTY, LLC_WAYS: EMPTY[LLC_WAYS] - 1}
    wait_for(lambda: node.totals() == with_class, f"the class being told: {with_class}")

    inventory = f'vmqos_placement_inventory{{resource_class="{LLC_WAYS}"}}'
    wait_for(lambda: metrics(agent, port)[inventory] == with_class[LLC_WAYS], "the metric")
    told = metrics(agent, port)
    assert told["vmqos_placement_up"] == 1
    assert "vmqos_nova_up" not in told
    found = doctor(agent)
    assert node.hostname in found["Placement"]["detail"]
    # The capped VM takes nothing that is counted; the other one's was never asked of Placement.
    assert found["Claims in Placement"]["status"] == "warning"
    assert "none for 1 VM with a promise (" in found["Claims in Placement"]["detail"]


def test_a_listed_class_is_offered_before_any_vm_is_in_it_and_no_other_vm_gets_its_closid(
    placement: Placement, node: ComputeNode, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    section = {**placement.credentials, "hypervisor_hostname": node.hostname}
    listed = {"shared_classes": "ways3, mb50, code1-data1", "other_classes": 0}
    agent = make_agent({"placement": section, "allocation": listed})
    agent.start()
    cap, half = "CUSTOM_LLC_SHARED_WAYS3", "CUSTOM_LLC_SHARED_MB50"
    # What the host can't grant without cdp is not offered, and takes no CLOSID.
    offered = {LLC_WAYS: 9, LLC_CLASSES: 5, cap: MEMBERS, half: MEMBERS}
    wait_for(lambda: node.child is not None and node.totals() == offered, "the classes being offered")
    # Traits are told after the inventories.
    wait_for(lambda: SHARED_FULL in node.of_child("traits"), "the trait being told")
    # All servers are placed before one of them runs; the sixth exclusive one finds no host.
    for taken in [{LLC_WAYS: 1, LLC_CLASSES: 1}] * 5 + [{cap: 1}, {half: 1}, {cap: 1}]:
        node.boot(**taken)
    with pytest.raises(LookupError):
        node.boot(**{LLC_WAYS: 1, LLC_CLASSES: 1})
    shared = {"hw:cache_ways": "3", "hw:cache_policy": "shared"}
    # One that asked Placement for nothing comes first, and takes none of what is promised to the others.
    unlisted = make_vm({"hw:cache_ways": "2", "hw:cache_policy": "shared"})
    vms = [make_vm({"hw:cache_ways": "1"}) for _ in range(5)]
    vms += [make_vm(specs) for specs in (shared, {"hw:mem_bandwidth_percent": "50"}, shared)]
    for vm in vms:
        wait_for(lambda vm=vm: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being served")
    told = agent.get(f"/v1/vms/{unlisted.uuid}")
    assert told["state"] == "pending" and "[allocation] other_classes allows 0" in told["reason"]


def test_a_foreign_group_takes_its_ways_out_of_placement_and_gives_them_back(
    placement: Placement, node: ComputeNode, make_agent: MakeAgent, simulator: Simulator, wait_for: WaitFor
) -> None:
    agent = make_agent({"placement": {**placement.credentials, "hypervisor_hostname": node.hostname}})
    agent.start()
    wait_for(lambda: node.child is not None and node.totals() == EMPTY, "the provider")
    foreign = simulator.root / "containers"
    foreign.mkdir()
    (foreign / "schemata").write_text("L3:0=7\n")
    wait_for(lambda: node.totals()[LLC_WAYS] < EMPTY[LLC_WAYS], "the ways being taken out")
    assert node.totals()[LLC_CLASSES] == EMPTY[LLC_CLASSES] - 1
    foreign.rmdir()
    wait_for(lambda: node.totals() == EMPTY, "the ways being back")


def test_the_host_is_served_while_placement_is_away(
    node: ComputeNode, make_agent: MakeAgent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    nobody = {"auth_type": "admin_token", "endpoint": f"http://127.0.0.1:{free_port()}", "token": "x"}
    port = free_port()
    agent = make_agent({"placement": nobody, "http": {"port": port}})
    agent.start()
    vm = make_vm({"hw:cache_ways": "2"})
    wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM being served")
    wait_for(lambda: bool(agent.gateway.get("/v1/health")["placement"]["error"]), "the reason")
    health = agent.gateway.get("/v1/health")
    assert "Placement can't be reached" in health["placement"]["error"]
    assert health["status"] == "ok", "the host does its work"
    assert metrics(agent, port)["vmqos_placement_up"] == 0
    assert "Placement can't be reached" in doctor(agent)["Placement"]["detail"]


def test_without_a_name_of_its_own_libvirt_s_is_the_compute_node_s(
    placement: Placement, make_agent: MakeAgent, libvirt_host: PrivateLibvirt, wait_for: WaitFor
) -> None:
    hostname = libvirt_host.connection().getHostname()
    node = ComputeNode(placement, hostname)
    agent = make_agent({"placement": placement.credentials})
    agent.start()
    wait_for(lambda: node.child is not None and node.totals() == EMPTY, f"{hostname}_LLC")


def test_an_agent_that_is_killed_and_started_again_changes_nothing_in_placement(
    placement: Placement, node: ComputeNode, make_agent: MakeAgent, wait_for: WaitFor
) -> None:
    agent = make_agent({"placement": {**placement.credentials, "hypervisor_hostname": node.hostname}})
    agent.start()
    wait_for(lambda: node.child is not None and node.totals() == EMPTY, "the provider")
    # Traits are told after the inventories, and make the provider another generation.
    wait_for(lambda: agent.gateway.get("/v1/health")["placement"]["inventories"] == TOLD, "all being told")
    before = node.child
    agent.end()
    agent.start()
    wait_for(lambda: bool(agent.gateway.get("/v1/health")["placement"]["told_at"]), "the provider being looked at")
    assert node.child == before
    assert agent.gateway.get("/v1/health")["placement"]["changes"] == 0


def test_a_gateway_with_credentials_and_a_file_does_not_start(
    placement: Placement, make_agent: MakeAgent, workspace: Any
) -> None:
    agent = make_agent({"placement": {**placement.credentials, "provider_yaml": "/etc/nova/vmqos.yaml"}})
    with pytest.raises(RuntimeError):
        agent.start()
    assert "counted twice" in agent.gateway.log.read_text()


def test_the_file_is_where_nova_looks_for_it(make_agent: MakeAgent, tmp_path: Any, wait_for: WaitFor) -> None:
    path = tmp_path / f"{uuid.uuid4()}.yaml"
    agent = make_agent({"placement": {"provider_yaml": path}})
    agent.start()
    wait_for(path.exists, "the file")
    assert f"{LLC_WAYS}:" in path.read_text()
    wait_for(lambda: "restart nova-compute" in agent.gateway.log.read_text(), "the log having it")
    wait_for(lambda: agent.gateway.get("/v1/health")["placement"]["inventories"] == TOLD, "health having it")
