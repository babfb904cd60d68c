# SPDX-License-Identifier: Apache-2.0
"""Whether Nova, Placement, the domain XML and resctrl say the same, each asked by itself and not over the agent."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libvirt

from tests.openstack.cloud.cloud import Cloud
from tests.openstack.cloud.node import Node
from tools.lab import outside_check, processes
from tools.lab.outside_check import Promise
from tools.lab.vms import NOVA_NAMESPACE
from vmqos.extra_specs.resources import CLASSES, LLC_CLASSES, LLC_WAYS

RUNNING = ("ACTIVE", "VERIFY_RESIZE")
WITHOUT_A_HOST = ("SHELVED_OFFLOADED", "ERROR")
WAYS = "hw:cache_ways"
GROUP = "vmqos."


@dataclass(frozen=True, slots=True)
class Server:
    """A server, as Nova's API tells it.

    :ivar host: the name of its node's nova-compute; empty where it has none.
    :ivar ways: what its flavor promises.
    """

    uuid: str
    name: str
    status: str
    host: str
    ways: int


@dataclass(frozen=True, slots=True)
class Held:
    """What the migration of a server has as long as its resize is neither confirmed nor reverted.

    :ivar consumer: the migration's UUID.
    :ivar host: the name of the node that the server comes from.
    :ivar ways: what the old flavor promises.
    """

    server: str
    consumer: str
    host: str
    ways: int


def agree(cloud: Cloud, *, held: Mapping[str, int] | None = None) -> None:
    """Wait until all of them agree about every server of the cloud.

    :param held: the ways of the old flavor, by the UUIDs of the servers that are being resized or migrated.
    :raises AssertionError: saying where they still do not.
    """
    found: list[str] = []

    def settled() -> bool:
        found[:] = disagreements(cloud, held or {})
        return not found

    try:
        processes.wait_until(settled, "agreement", 120.0, 0.5)
    except TimeoutError:
        raise AssertionError("\n".join(found)) from None


def disagreements(cloud: Cloud, held: Mapping[str, int]) -> list[str]:
    """What does not agree."""
    servers = [_server(found) for found in cloud.api.compute.servers(details=True)]
    migrations = [
        Held(found.server_id, found.uuid, found.source_compute, held[found.server_id])
        for found in cloud.api.compute.migrations(status="finished")
        if found.server_id in held
    ]
    if len(migrations) != len(held):
        return [f"{len(held)} servers are to be between two flavors or hosts, and Nova knows of {migrations}"]
    return [
        *(
            line
            for node in cloud.nodes
            for line in _of_node(
                cloud,
                node,
                [server for server in servers if server.host == node.name and server.status not in WITHOUT_A_HOST],
                [migration for migration in migrations if migration.host == node.name],
            )
        ),
        *_of_all_allocations(cloud, servers),
    ]


def promise_in_xml(text: str) -> int:
    """The ways that a domain's description promises."""
    specs = ET.fromstring(text).iterfind(f".//{{{NOVA_NAMESPACE}}}extraSpec")
    return next((int(spec.text or 0) for spec in specs if spec.get("name") == WAYS), 0)


def _server(found: Any) -> Server:
    ways = found.flavor["extra_specs"].get(WAYS, 0)
    return Server(found.id, found.name, found.status, found.compute_host or "", int(ways))


def _of_node(cloud: Cloud, node: Node, servers: Sequence[Server], migrations: Sequence[Held]) -> Iterator[str]:
    yield from _of_placement(cloud, node, servers, migrations)
    yield from _of_libvirt(node, servers, {migration.server for migration in migrations})
    yield from _of_resctrl(node, [server for server in servers if server.status in RUNNING])


def _of_placement(cloud: Cloud, node: Node, servers: Sequence[Server], migrations: Sequence[Held]) -> Iterator[str]:
    expected = {server.uuid: _resources(server.ways) for server in servers if server.ways}
    expected |= {migration.consumer: _resources(migration.ways) for migration in migrations if migration.ways}
    allocated = {
        consumer: {name: amount for name, amount in found["resources"].items() if name in CLASSES}
        for consumer, found in cloud.of_cache(node, "allocations").items()
    }
    if allocated != expected:
        yield f"Placement has allocated {allocated} on {node.name}, and the servers take {expected}"


def _resources(ways: int) -> dict[str, int]:
    return {LLC_WAYS: ways, LLC_CLASSES: 1}


def _of_all_allocations(cloud: Cloud, servers: Sequence[Server]) -> Iterator[str]:
    for server in servers:
        allocated = cloud.placement.ask("GET", f"/allocations/{server.uuid}")["allocations"]
        if bool(allocated) is (server.status in WITHOUT_A_HOST):
            yield f"{server.name} is {server.status}, and Placement has allocated {allocated} for it"


def _of_libvirt(node: Node, servers: Sequence[Server], leaving: set[str]) -> Iterator[str]:
    """:param leaving: servers whose old description stays until their resize is answered, if they are elsewhere."""
    domains = node.domains()
    expected = {server.uuid for server in servers}
    if domains.keys() - leaving != expected - leaving or not domains.keys() >= expected:
        yield f"{node.name}'s libvirt has the domains {sorted(domains)}, and the servers are {sorted(expected)}"
        return
    for uuid in domains.keys() - expected:
        if domains[uuid].isActive():
            yield f"{uuid} runs on {node.name}, which it has left"
    for server in servers:
        domain = domains[server.uuid]
        if bool(domain.isActive()) is not (server.status in RUNNING):
            yield f"{server.name} is {server.status}, and its domain {'runs' if domain.isActive() else 'does not run'}"
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            told = promise_in_xml(domain.XMLDesc(flags))
            if told != server.ways:
                yield f"{server.name}'s flavor promises {server.ways} ways, and its domain's description {told}"


def _of_resctrl(node: Node, running: Sequence[Server]) -> Iterator[str]:
    root = node.simulator.root
    for directory, expected in (
        (root, {f"{GROUP}{server.uuid}" for server in running if server.ways}),
        (root / "mon_groups", {f"{GROUP}{server.uuid}" for server in running if not server.ways}),
    ):
        groups = {path.name for path in directory.glob(f"{GROUP}*")}
        if groups != expected:
            yield f"{directory} has {sorted(groups)}, and the servers need {sorted(expected)}"
            return
    promises = [
        Promise(server.uuid, server.name, server.ways, bool(server.ways), node.tasks(server.uuid)) for server in running
    ]
    caches = outside_check.caches_with_cpus(node.simulator.sysfs)
    yield from (finding.text for finding in outside_check.check(root, promises, caches) if not finding.good)
