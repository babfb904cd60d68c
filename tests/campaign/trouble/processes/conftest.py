# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the functional tests, and a stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign.trouble.processes.stage import Stage, judging
from tests.functional.agent.tree import Tree
from tests.functional.conftest import (
    MakeAgent,
    Pace,
    _session_libvirt,
    libvirt_host,
    made_agents,
    make_agent,
    other_host,
    remove_all_vms,
    resctrl,
    simulator,
    tree_before,
    workspace,
)
from tests.functional.conftest import pace as pace_of_this_version
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.stalls import Stalls
from tools.lab.versions import Exchangeable
from tools.lab.workspace import Workspace

__all__ = ["_session_libvirt", "libvirt_host", "made_agents", "make_agent", "other_host", "resctrl"]
__all__ += ["pace_of_this_version", "simulator", "tree_before", "workspace"]


@pytest.fixture
def pace(pace_of_this_version: Pace, tree_before: Path) -> Pace:
    """The functional tests' pace; programs are started in the version that is installed."""
    return replace(pace_of_this_version, launch=Exchangeable(pace_of_this_version.launch, tree_before))


@pytest.fixture
def stage(
    workspace: Workspace,
    libvirt_host: PrivateLibvirt,
    other_host: PrivateLibvirt,
    simulator: Simulator,
    make_agent: MakeAgent,
    pace: Pace,
    tmp_path: Path,
) -> Iterator[Stage]:
    """An agent with its gateway on a simulator with the judge in it, and another host."""
    with judging(simulator, tmp_path), Stalls() as stalls:
        agent = make_agent({"gateway": {}, "agent": {"audit_interval": 1.0, "retry_delay_max": 0.5}})
        assert isinstance(pace.launch, Exchangeable)
        tree = Tree(simulator.root)
        stage = Stage(workspace, libvirt_host, agent, pace.launch, tree, simulator, tmp_path, stalls, other_host)
        agent.start()
        yield stage
        agent.end()
        remove_all_vms(other_host)
