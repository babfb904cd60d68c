# SPDX-License-Identifier: Apache-2.0
"""The agents of a whole cloud and one real Placement: what each costs it, and whether that grows with their number.

Placement is one process before MariaDB, as Gnocchi is in the tests; what is told of it is its own CPU time, which a
busy machine does not change as it does the clock's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from oslo_config import cfg

from tests.benchmarks.figures import Figure
from tests.openstack.placement.compute_node import ComputeNode
from tests.openstack.servers import settings
from tests.openstack.servers.mariadb import MariaDb
from tests.openstack.servers.placement import Placement as Server
from tools.lab.processes import cpu_seconds
from tools.lab.workspace import Workspace
from vmqos.conf import loader
from vmqos.extra_specs.resources import CMT, L3_CAT, LLC_CLASSES, LLC_WAYS, MBA, MBM, TRAITS, provider_name
from vmqos.openstack.placement import Inventory, Placement
from vmqos.openstack.provider_sync import Synced, Wanted, synchronize
from vmqos.openstack.service import Service

SIZES = (100, 300, 1000)
"""How many agents the cloud has, one after the other."""

AT_ONCE = 4
"""How many of them talk to Placement at the same time."""

LOOKS = 5
"""How often an agent looks."""

GROWTH = 1.2
"""How many times as much an agent may cost in the largest cloud as in the smallest; the rest is noise."""


class Counted(Service):
    """A way to Placement that counts its requests."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, "placement", "placement")
        self.requests = 0

    def ask(self, *arguments: Any, **options: Any) -> Any:
        """See :class:`vmqos.openstack.service.Service`."""
        self.requests += 1
        return super().ask(*arguments, **options)


class Agent:
    """One host's side."""

    def __init__(self, conf: cfg.ConfigOpts, node: ComputeNode) -> None:
        self.service = Counted(conf)
        self.node = node
        self.last: Synced | None = None
        self.wanted = Wanted(
            compute_node=node.hostname,
            name=provider_name(node.hostname),
            inventories={LLC_WAYS: Inventory(total=9, max_unit=9), LLC_CLASSES: Inventory(total=15)},
            traits=frozenset({L3_CAT, MBA, CMT, MBM}),
            known_traits=frozenset(TRAITS),
        )

    def tell(self) -> None:
        """What its thread does."""
        self.last = synchronize(Placement(self.service), self.wanted, self.last)

    def look(self) -> None:
        """What its thread does from time to time, a few times in a row: once is too short to be measured."""
        for _ in range(LOOKS):
            self.tell()

    def change(self) -> None:
        """A foreign group takes a way."""
        ways = replace(self.wanted.inventories[LLC_WAYS], total=8, max_unit=8)
        self.wanted = replace(self.wanted, inventories={**self.wanted.inventories, LLC_WAYS: ways})
        self.tell()

    def start_anew(self) -> None:
        """An agent that is restarted."""
        self.last = None
        self.tell()


WHAT: tuple[tuple[str, Callable[[Agent], None]], ...] = (
    ("makes its provider", Agent.tell),
    (f"looks {LOOKS} times whether all is well", Agent.look),
    ("tells of a change", Agent.change),
    ("is started anew", Agent.start_anew),
)


def run() -> Iterator[Figure]:
    """Let the cloud grow, and have each size's agents do everything."""
    with Workspace() as workspace:
        database = MariaDb(workspace)
        server = Server(workspace, database=database.create("placement"), threads=AT_ONCE)
        path = settings.write(workspace.path / "vmqos.conf", {"placement": server.credentials})
        conf = loader.load(["--config-file", str(path)])
        first: dict[str, float] = {}
        try:
            agents: list[Agent] = []
            for size in SIZES:
                fresh = [Agent(conf, ComputeNode(server, f"node-{number}")) for number in range(len(agents), size)]
                agents += fresh
                for name, action in WHAT:
                    yield _measure(size, name, action, fresh, server, first)
        finally:
            server.stop()
            database.stop()


def _measure(
    size: int, name: str, action: Callable[[Agent], None], agents: list[Agent], server: Server, first: dict[str, float]
) -> Figure:
    """The cost of one action of these agents, in a cloud of that size."""
    requests = sum(agent.service.requests for agent in agents)
    used, began = cpu_seconds(server.pid), time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(action, agents))
    wall = time.monotonic() - began
    used = cpu_seconds(server.pid) - used
    requests = sum(agent.service.requests for agent in agents) - requests
    each = used / len(agents) * 1e3
    smallest = first.setdefault(name, each)
    detail = (
        f"CPU time of Placement, each of {len(agents)} agents; {requests / len(agents):.1f} requests each, "
        f"{requests / wall:.0f} a second on the clock; {each / smallest:.2f} times the cost with {SIZES[0]}"
    )
    return Figure(f"of {size} agents, each {name}", each, "ms", GROWTH * smallest if size > SIZES[0] else None, detail)
