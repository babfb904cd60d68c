# SPDX-License-Identifier: Apache-2.0
"""A real Placement, and compute nodes in it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from oslo_config import cfg

from tests.openstack.placement.compute_node import ComputeNode
from tests.openstack.servers import settings
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.placement import Placement
from tools.lab.workspace import Workspace
from vmqos.cloud.service import Service
from vmqos.conf import loader


@pytest.fixture(scope="session")
def placement_workspace() -> Iterator[Workspace]:
    """The directory that the servers are in, and leave with."""
    with Workspace() as opened:
        yield opened


@pytest.fixture(scope="session")
def placement(placement_workspace: Workspace) -> Iterator[Placement]:
    """A Placement that believes tokens as they come."""
    started = Placement(placement_workspace)
    yield started
    started.stop()
    # pytest shows it with a test that failed.
    print(f"--- placement\n{started.said[-4000:]}")


@pytest.fixture(scope="session")
def keystone(placement_workspace: Workspace) -> Iterator[Keystone]:
    """A Keystone."""
    started = Keystone(placement_workspace)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def guarded_placement(placement_workspace: Workspace, keystone: Keystone) -> Iterator[Placement]:
    """A Placement that asks Keystone for everybody's rights."""
    started = Placement(placement_workspace, keystone)
    yield started
    started.stop()


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
    """The agent's way to Placement."""
    return Service(configure(placement=placement.credentials), "placement", "placement")
