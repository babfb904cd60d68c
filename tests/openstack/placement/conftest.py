# SPDX-License-Identifier: Apache-2.0
"""A real Placement, and compute nodes in it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from oslo_config import cfg

from tests.functional import conftest as functional
from tests.openstack.placement.compute_node import ComputeNode
from tests.openstack.servers import settings
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.mariadb import MariaDb
from tests.openstack.servers.neutron import Neutron
from tests.openstack.servers.nova import NovaApi
from tests.openstack.servers.placement import Placement
from tools.lab.workspace import Workspace
from vmqos.conf import loader
from vmqos.openstack.service import Service

# The whole agent stands where the functional tests have it stand.
workspace = functional.workspace
_session_libvirt = functional._session_libvirt
libvirt_host = functional.libvirt_host
libvirt_connection = functional.libvirt_connection
virt_type = functional.virt_type
simulator = functional.simulator
resctrl = functional.resctrl
pace = functional.pace
made_agents = functional.made_agents
make_agent = functional.make_agent
make_vm = functional.make_vm
wait_for = functional.wait_for


@pytest.fixture(scope="session")
def placement(workspace: Workspace) -> Iterator[Placement]:
    """A Placement that believes tokens as they come."""
    started = Placement(workspace)
    yield started
    started.stop()
    # pytest shows it with a test that failed.
    print(f"--- placement\n{started.said[-4000:]}")


@pytest.fixture(scope="session")
def keystone(workspace: Workspace) -> Iterator[Keystone]:
    """A Keystone."""
    started = Keystone(workspace)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def guarded_placement(workspace: Workspace, keystone: Keystone) -> Iterator[Placement]:
    """A Placement that asks Keystone for everybody's rights."""
    started = Placement(workspace, keystone)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def neutron(workspace: Workspace, keystone: Keystone) -> Iterator[Neutron]:
    """A Neutron; its tables can't be made in a file."""
    database = MariaDb(workspace)
    started = Neutron(workspace, database.create("neutron"))
    started.start(keystone, "fake:///")
    yield started
    for server in (started, database):
        server.stop()


@pytest.fixture(scope="session")
def nova(workspace: Workspace, keystone: Keystone, neutron: Neutron) -> Iterator[NovaApi]:
    """Nova's API, which knows servers that a test makes."""
    started = NovaApi(workspace, keystone)
    yield started
    started.stop()
    print(f"--- nova-api\n{started.said[-4000:]}")


@pytest.fixture
def node(placement: Placement) -> ComputeNode:
    """A compute node, as nova-compute makes it known."""
    return ComputeNode(placement, f"node-{uuid.uuid4()}")


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., cfg.ConfigOpts]:
    """Reads a configuration with these sections."""

    def read(**sections: Mapping[str, object]) -> cfg.ConfigOpts:
        path = settings.write(tmp_path / "vmqos.conf", sections)
        return loader.load(["--config-file", str(path)])

    return read


@pytest.fixture
def service(placement: Placement, configure: Callable[..., cfg.ConfigOpts]) -> Service:
    """The gateway's way to Placement."""
    return Service(configure(placement=placement.credentials), "placement", "placement")
