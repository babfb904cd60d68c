# SPDX-License-Identifier: Apache-2.0
"""A compute node with instances under the agent, and the servers that measure them.

Servers are started once for all tests, each when a test first asks for it; the message broker and Gnocchi at once, for
they need the longest. A machine that lacks something fails the tests and says what; none is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import pytest

from tests.functional.conftest import WaitFor, workspace
from tests.openstack.servers import ceilometer
from tests.openstack.servers.ceilometer import Polling
from tests.openstack.servers.gnocchi import Gnocchi
from tests.openstack.servers.mariadb import MariaDb
from tests.openstack.servers.rabbitmq import RabbitMq
from tests.openstack.telemetry.counters import Counters
from tests.openstack.telemetry.node import Node
from tools.lab import processes
from tools.lab.workspace import Workspace


class Stoppable(Protocol):
    """A server."""

    def stop(self) -> None:
        """End it."""


@pytest.fixture(scope="session")
def broker(workspace: Workspace) -> Iterator[RabbitMq]:
    """A message broker, perhaps still starting."""
    started = RabbitMq(workspace)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def gnocchi(workspace: Workspace) -> Iterator[Future[Gnocchi]]:
    """Gnocchi with Ceilometer's resource types, perhaps still starting."""
    started: list[Stoppable] = []

    def start() -> Gnocchi:
        database = MariaDb(workspace)
        started.append(database)
        server = Gnocchi(workspace, database)
        started.append(server)
        ceilometer.upgrade(workspace, server.credentials)
        return server

    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start)
        yield starting
    for server in reversed(started):
        server.stop()


@pytest.fixture(scope="session")
def node(workspace: Workspace, broker: RabbitMq, gnocchi: Future[Gnocchi]) -> Iterator[Node]:
    """The compute node, with all instances placed; what takes long to start does so meanwhile."""
    started = Node(workspace)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def polling(workspace: Workspace, node: Node) -> Iterator[Polling]:
    """``ceilometer-polling`` alone: no message bus, no Keystone, no Nova."""
    started = Polling(workspace, resctrl=node.simulator.root, libvirt_uri=node.libvirt.uri)
    yield started
    started.stop()
    # pytest shows it with a test that failed.
    print(f"--- ceilometer-polling\n{started.said[-8000:]}")


@pytest.fixture
def counters(workspace: Workspace, node: Node) -> Iterator[Counters]:
    """Counters that show what the test wants, until its end."""
    held = Counters(workspace, node.simulator.root)
    yield held
    held.release()


@pytest.fixture(scope="session")
def wait_for() -> WaitFor:
    """See :class:`tests.functional.conftest.WaitFor`; an error in the condition ends the wait."""

    def wait(condition: Callable[[], bool], what: str, timeout: float = 90.0) -> None:
        processes.wait_until(condition, what, timeout)

    return wait


__all__ = ["workspace"]
