# SPDX-License-Identifier: Apache-2.0
"""The agent ends and comes back while Nova goes on."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import libvirt
import pytest

from tests.openstack.cloud.agreement import agree, disagreements, promise_in_xml
from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.conftest import MakeServer
from tools.lab.vms import NOVA_NAMESPACE

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


def test_a_server_whose_description_came_without_extra_specs_gets_what_nova_says(
    cloud: Cloud, make_server: MakeServer
) -> None:
    (node,) = cloud.nodes
    node.agent.kill()
    try:
        server = make_server("w2")
        domain = node.domains()[server.id]
        whole, part = (metadata(domain) for _ in range(2))
        flavor, specs = (part.find(f".//{{{NOVA_NAMESPACE}}}{name}") for name in ("flavor", "extraSpecs"))
        assert flavor is not None and specs is not None
        flavor.remove(specs)
        set_metadata(domain, part)
        assert promise_in_xml(domain.XMLDesc()) == 0
    finally:
        node.agent.start()

    def differ() -> list[str]:
        return [line for line in disagreements(cloud, {}) if "description" not in line]

    cloud.wait_for(lambda: not differ(), "the server having what its flavor promises")

    def is_told() -> bool:
        # The agent tells what a pass did a moment after it did it.
        told = node.agent.get(f"/v1/vms/{server.id}")
        return (told["state"], told["ways_requested"]) == ("kept", 2)

    cloud.wait_for(is_told, "the agent telling of the promise that Nova told it")
    set_metadata(domain, whole)
    agree(cloud)


def metadata(domain: libvirt.virDomain) -> ET.Element:
    """What Nova wrote into a running server's description."""
    found = ET.fromstring(domain.XMLDesc()).find(f"metadata/{{{NOVA_NAMESPACE}}}instance")
    assert found is not None
    return found


def set_metadata(domain: libvirt.virDomain, element: ET.Element) -> None:
    """Put something else in its place."""
    text = ET.tostring(element, encoding="unicode")
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, "instance", NOVA_NAMESPACE, live)
