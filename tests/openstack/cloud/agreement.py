# SPDX-License-Identifier: Apache-2.0
"""Whether Nova, Placement, the domain XML and resctrl say the same, each asked by itself and not over the agent."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import libvirt

from tests.openstack.cloud.cloud import Cloud
from tools.lab import outside_check, processes
from tools.lab.outside_check import Promise
from tools.lab.vms import NOVA_NAMESPACE, RunningVm
from vmqos.openstack.resources import CLASSES, LLC_CLASSES, LLC_WAYS, provider_name

RUNNING = ("ACTIVE", "VERIFY_RESIZE")
WITHOUT_A_HOST = ("SHELVED_OFFLOADED", "ERROR")
WAYS = "hw:cache_ways"
GROUP = "vmqos."


@dataclass(frozen=True, slots=True)
class Server:
    """A server, as Nova's API tells it.

    :ivar ways: what its flavor promises.
    """

    uuid: str
    name: str
    status: str
    ways: int

    @property
    def resources(self) -> dict[str, int]:
        """What Placement has to have allocated for it on the compute node."""
        return _resources(0 if self.status in WITHOUT_A_HOST else self.ways)


def agree(cloud: Cloud, *, held: Mapping[str, int] | None = None) -> None:
    """Wait until all of them agree about every server of the cloud.

    :param held: the ways of the old flavor, by the UUIDs of the servers whose resize is neither confirmed nor
        reverted: they are the migration's meanwhile.
    :raises AssertionError: saying where they still do not.
    """
    found: list[str] = []

    def settled() -> bool:
        found[:] = disagreements(cloud, held or {})
        return not found

    try:
        processes.wait_until(settled, "agreement", 30.0, 0.5)
    except TimeoutError:
        raise AssertionError("\n".join(found)) from None


def disagreements(cloud: Cloud, held: Mapping[str, int]) -> list[str]:
    """What does not agree."""
    servers = [_server(found) for found in cloud.api.compute.servers(details=True)]
    return [
        *_of_placement(cloud, servers, held),
        *_of_libvirt(cloud, servers),
        *_of_resctrl(cloud, [server for server in servers if server.status in RUNNING]),
    ]


def promise_in_xml(text: str) -> int:
    """The ways that a domain's description promises."""
    specs = ET.fromstring(text).iterfind(f".//{{{NOVA_NAMESPACE}}}extraSpec")
    return next((int(spec.text or 0) for spec in specs if spec.get("name") == WAYS), 0)


def _server(found: Any) -> Server:
    return Server(found.id, found.name, found.status, int(found.flavor["extra_specs"].get(WAYS, 0)))


def _resources(ways: int) -> dict[str, int]:
    return {LLC_WAYS: ways, LLC_CLASSES: 1} if ways else {}


def _of_placement(cloud: Cloud, servers: list[Server], held: Mapping[str, int]) -> Iterator[str]:
    child = cloud.provider(provider_name(cloud.hostname))
    assert child is not None
    allocations = {
        consumer: {name: amount for name, amount in found["resources"].items() if name in CLASSES}
        for consumer, found in cloud.of_provider(child["uuid"], "allocations").items()
    }
    expected = {server.uuid: server.resources for server in servers}
    for migration in cloud.api.compute.migrations(status="finished"):
        if migration.server_id in held:
            expected[migration.uuid] = _resources(held[migration.server_id])
    expected = {consumer: resources for consumer, resources in expected.items() if resources}
    if allocations != expected:
        yield f"Placement has allocated {allocations} of {child['name']}, and the servers take {expected}"
    for server in servers:
        everywhere = cloud.placement.ask("GET", f"/allocations/{server.uuid}")["allocations"]
        if bool(everywhere) is (server.status in WITHOUT_A_HOST):
            yield f"{server.name} is {server.status}, and Placement has allocated {everywhere} for it"


def _of_libvirt(cloud: Cloud, servers: list[Server]) -> Iterator[str]:
    domains = {domain.UUIDString(): domain for domain in cloud.libvirt.connection().listAllDomains()}
    expected = {server.uuid for server in servers if server.status not in WITHOUT_A_HOST}
    if domains.keys() != expected:
        yield f"libvirt has the domains {sorted(domains)}, and the servers are {sorted(expected)}"
    for server in servers:
        domain = domains.get(server.uuid)
        if domain is None:
            continue
        if bool(domain.isActive()) is not (server.status in RUNNING):
            yield f"{server.name} is {server.status}, and its domain {'runs' if domain.isActive() else 'does not run'}"
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            told = promise_in_xml(domain.XMLDesc(flags))
            if told != server.ways:
                yield f"{server.name}'s flavor promises {server.ways} ways, and its domain's description {told}"


def _of_resctrl(cloud: Cloud, running: list[Server]) -> Iterator[str]:
    root = cloud.simulator.root
    for directory, expected in (
        (root, {f"{GROUP}{server.uuid}" for server in running if server.ways}),
        (root / "mon_groups", {f"{GROUP}{server.uuid}" for server in running if not server.ways}),
    ):
        groups = {path.name for path in directory.glob(f"{GROUP}*")}
        if groups != expected:
            yield f"{directory} has {sorted(groups)}, and the servers need {sorted(expected)}"
            return
    promises = [
        Promise(server.uuid, server.name, server.ways, bool(server.ways), tasks_of(cloud, server.uuid))
        for server in running
    ]
    caches = outside_check.caches_with_cpus(cloud.simulator.sysfs)
    yield from (finding.text for finding in outside_check.check(root, promises, caches) if not finding.good)


def tasks_of(cloud: Cloud, uuid: str) -> dict[int, str]:
    """The tasks of a server's QEMU process with their names; empty where it does not run."""
    try:
        domain = cloud.libvirt.connection().lookupByUUIDString(uuid)
    except libvirt.libvirtError:
        return {}
    return RunningVm(uuid, domain.name(), cloud.libvirt).tasks()
