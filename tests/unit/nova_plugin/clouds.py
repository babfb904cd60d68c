# SPDX-License-Identifier: Apache-2.0
"""Compute nodes in Placement as the agents keep them, and HostStates, RequestSpecs and servers as Nova makes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import httpx
from nova import context as nova_context
from nova import objects
from nova.scheduler.host_manager import HostState
from nova.virt import hardware

from vmqos.extra_specs import resources

LETS_GO = int(version("openstack-placement").partition(".")[0]) >= 14
"""Whether Placement lets a claim go from a host of which more is claimed than there is. That of 2025.1 does not: it
refuses whatever leaves such a host as full as it was (``_check_capacity_exceeded`` in placement/objects/allocation.py).
"""
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.36"}
_numbers = itertools.count(1)


@dataclass(slots=True)
class Placement:
    """Placement's own API.

    :ivar http: a client of it.
    :ivar asked: the paths that were asked for since the test began.
    """

    http: httpx.Client
    _trees: list[list[str]] = field(default_factory=list)
    _consumers: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(cls, url: str) -> Iterator[Placement]:
        """That of the URL; what was made is removed at the end."""
        with httpx.Client(base_url=url, headers=HEADERS, trust_env=False) as http:
            made = cls(http)
            yield made
            for consumer in made._consumers:
                http.delete(f"/allocations/{consumer}").raise_for_status()
            for provider in itertools.chain.from_iterable(reversed(tree) for tree in made._trees):
                http.delete(f"/resource_providers/{provider}").raise_for_status()

    def compute_node(
        self,
        ways: int = 8,
        classes: int = 15,
        traits: tuple[str, ...] = (resources.L3_CAT,),
        units: tuple[int, int] | None = None,
        shared: Mapping[str, bool] | None = None,
        others: int | None = None,
    ) -> str:
        """A compute node whose agent runs; its UUID.

        :param units: the least and the most ways that one server can have.
        :param shared: the resource classes of the shared classes that the agent lists, and whether it offers them.
        :param others: how many classes that are not listed the agent says it can have.
        """
        name = f"node-{next(_numbers)}"
        root = self._root(name)
        cache = self._provider(resources.provider_name(name), root)
        self._trees.append([root, cache])
        more = {name: 1000 * is_offered for name, is_offered in (shared or {}).items()}
        if others is not None:
            more[resources.LLC_OTHERS] = others
        self._fill(cache, ways, classes, traits, units, more)
        return root

    def node_with_a_file(self, ways: int, classes: int) -> str:
        """A compute node whose agent writes a file for nova-compute: the provider is the compute node's own."""
        root = self._provider(f"node-{next(_numbers)}")
        self._trees.append([root])
        self._fill(root, ways, classes, (resources.L3_CAT,), None, {})
        return root

    def bare_node(self) -> str:
        """A compute node without an agent; its UUID."""
        root = self._root(f"node-{next(_numbers)}")
        self._trees.append([root])
        return root

    def allocate(self, node: str, ways: int, classes: int = 1) -> None:
        """Have a server of a flavor that asks Placement."""
        cache = next(tree for tree in self._trees if tree[0] == node)[1]
        taken = {"resources": {resources.LLC_WAYS: ways, resources.LLC_CLASSES: classes}}
        body = {
            "allocations": {cache: taken},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": None,
        }
        consumer = str(uuid4())
        self.http.put(f"/allocations/{consumer}", json=body).raise_for_status()
        self._consumers.append(consumer)

    def claimed(self, consumers: Iterable[str]) -> None:
        """Have allocations that somebody else made removed at the end."""
        self._consumers += consumers

    def candidates(self, asked: Mapping[str, int], required: Iterable[str] = ()) -> dict[str, list[Any]]:
        """The allocation candidates, by compute node, as nova-scheduler hands them to its filters."""
        params = {"resources": ",".join(f"{name}:{amount}" for name, amount in {"VCPU": 1, **asked}.items())}
        if traits := ",".join(required):
            params["required"] = traits
        answer = self.http.get("/allocation_candidates", params=params).raise_for_status().json()
        found: dict[str, list[Any]] = {}
        for candidate in answer["allocation_requests"]:
            for provider in candidate["allocations"]:
                found.setdefault(provider, []).append(candidate)
        return found

    def unused_traits(self, names: Iterable[str]) -> list[str]:
        """Those of the traits that somebody made and no provider has."""
        known = self.http.get("/traits", params={"name": f"in:{','.join(names)}"}).raise_for_status().json()["traits"]
        return [
            name
            for name in known
            if not self.http.get("/resource_providers", params={"required": name}).json()["resource_providers"]
        ]

    def _fill(
        self,
        provider: str,
        ways: int,
        classes: int,
        traits: tuple[str, ...],
        units: tuple[int, int] | None,
        more: Mapping[str, int],
    ) -> None:
        for kind, names in (("resource_classes", (*resources.CLASSES, *more)), ("traits", traits)):
            for name in names:
                self.http.put(f"/{kind}/{name}").raise_for_status()
        totals = {resources.LLC_WAYS: ways, resources.LLC_CLASSES: classes, **more}
        least, most = units or (1, ways)
        self._put(f"/resource_providers/{provider}/inventories", totals, {"min_unit": least, "max_unit": most})
        self._tag(provider, *traits)

    def _root(self, name: str) -> str:
        """A compute node's own provider, as nova-compute makes it."""
        root = self._provider(name)
        self._put(f"/resource_providers/{root}/inventories", {"VCPU": 64, "PCPU": 64, "MEMORY_MB": 4096})
        self._tag(root, "OWNER_NOVA")
        return root

    def _tag(self, provider: str, *traits: str) -> None:
        generation = self.http.get(f"/resource_providers/{provider}").json()["generation"]
        body = {"traits": list(traits), "resource_provider_generation": generation}
        self.http.put(f"/resource_providers/{provider}/traits", json=body).raise_for_status()

    def _provider(self, name: str, parent: str | None = None) -> str:
        uuid = str(uuid4())
        body = {"name": name, "uuid": uuid, **({"parent_provider_uuid": parent} if parent else {})}
        self.http.post("/resource_providers", json=body).raise_for_status()
        return uuid

    def _put(self, path: str, totals: Mapping[str, int], ways_units: Mapping[str, int] | None = None) -> None:
        # Placement knows no total of 0, so an agent tells it one that is reserved.
        inventories = {
            name: {"total": total} if total else {"total": 1, "reserved": 1} for name, total in totals.items()
        }
        if ways_units and totals[resources.LLC_WAYS]:
            inventories[resources.LLC_WAYS].update(ways_units)
        body = {"inventories": inventories, "resource_provider_generation": 0}
        self.http.put(path, json=body).raise_for_status()


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cell with hosts.

    :ivar cell: the UUID of the cell.
    :ivar context: targeted at its database.
    """

    cell: str
    context: Any
    _made: list[Any] = field(default_factory=list)

    @classmethod
    @contextmanager
    def with_cell(cls, database: str) -> Iterator[Cloud]:
        """A further cell, on a database that exists; it and what was made in it is removed at the end."""
        context = nova_context.get_admin_context()
        uuid = str(uuid4())
        where = {"transport_url": "none:///", "database_connection": database}
        mapping = objects.CellMapping(context, uuid=uuid, name=uuid, **where)
        mapping.create()
        with nova_context.target_cell(context, mapping) as targeted:
            made = cls(uuid, targeted)
            yield made
        for thing in reversed(made._made):
            if not getattr(thing, "deleted", False):
                thing.destroy()
        mapping.destroy()

    def compute(self, node: str) -> str:
        """A compute node in the database, as nova-compute registers it; the name of its host."""
        host = f"host-{next(_numbers)}"
        service = objects.Service(self.context, host=host, binary="nova-compute", topic="compute", report_count=1)
        sizes = {"vcpus": 64, "memory_mb": 4096, "local_gb": 100, "free_ram_mb": 4096, "free_disk_gb": 100}
        used = dict.fromkeys(("vcpus_used", "memory_mb_used", "local_gb_used"), 0)
        about = {"hypervisor_type": "QEMU", "hypervisor_version": 1, "hypervisor_hostname": host, "cpu_info": ""}
        compute = objects.ComputeNode(self.context, uuid=node, host=host, metrics="[]", **sizes, **used, **about)
        compute.supported_hv_specs = []
        compute.stats = {}
        mapping = objects.CellMapping.get_by_uuid(self.context, self.cell)
        there = objects.HostMapping(nova_context.get_admin_context(), host=host, cell_mapping=mapping)
        for thing in (service, compute, there):
            thing.create()
            self._made.append(thing)
        return host

    def host(self, node: str, *servers: Any) -> HostState:
        """The HostState of a compute node with these servers on it."""
        name = f"host-{next(_numbers)}"
        state = HostState(name, f"{name}.example", self.cell)
        state.uuid = node
        state.instances = {server.uuid: server for server in servers}
        state.num_instances = len(servers)
        return state

    def server(self, specs: Mapping[str, str], stub: bool = False, host: str | None = None) -> Any:
        """A server in the database; the object is as nova-compute sends it, or a stub with its UUID alone."""
        made = objects.Instance(self.context, uuid=str(uuid4()), user_id="u", project_id="p", flavor=flavor(specs))
        made.system_metadata = {}
        made.host = host
        made.create()
        self._made.append(made)
        return objects.Instance(self.context, uuid=made.uuid) if stub else made


def flavor(specs: Mapping[str, str], vcpus: int = 1) -> Any:
    """A flavor."""
    sizes = {"vcpus": vcpus, "memory_mb": 64, "root_gb": 0, "ephemeral_gb": 0, "swap": 0}
    return objects.Flavor(
        flavorid="f", name="c2.cache", rxtx_factor=1.0, is_public=True, disabled=False, extra_specs=dict(specs), **sizes
    )


def request(specs: Mapping[str, str], uuid: str = "", *, vcpus: int = 1, **fields: Any) -> Any:
    """What nova-scheduler is asked for."""
    wanted = flavor(specs, vcpus)
    # As nova-api does it.
    topology = hardware.numa_get_constraints(wanted, objects.ImageMeta(properties=objects.ImageMetaProps()))
    asked = objects.RequestSpec(
        nova_context.get_admin_context(),
        flavor=wanted,
        instance_uuid=uuid or str(uuid4()),
        num_instances=1,
        scheduler_hints={},
        pci_requests=None,
        numa_topology=topology,
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        requested_destination=None,
    )
    for name, value in fields.items():
        setattr(asked, name, value)
    return asked
