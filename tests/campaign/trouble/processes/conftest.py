# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the functional tests, and a stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.trouble.processes.stage import Stage, judging
from tests.functional.agent.tree import Tree
from tests.functional.conftest import (
    MakeAgent,
    _session_libvirt,
    libvirt_host,
    made_agents,
    make_agent,
    pace,
    resctrl,
    simulator,
    workspace,
)
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.workspace import Workspace

__all__ = ["_session_libvirt", "libvirt_host", "made_agents", "make_agent", "pace", "resctrl", "simulator", "workspace"]


@pytest.fixture
def stage(
    workspace: Workspace, libvirt_host: PrivateLibvirt, simulator: Simulator, make_agent: MakeAgent, tmp_path: Path
) -> Iterator[Stage]:
    """An agent with its gateway on a simulator with the judge in it."""
    with judging(simulator, workspace, tmp_path):
        agent = make_agent({"gateway": {}, "agent": {"audit_interval": 1.0, "retry_delay_max": 0.5}})
        stage = Stage(workspace, libvirt_host, agent, Tree(simulator.root), simulator, tmp_path)
        agent.start()
        yield stage
        agent.end()
