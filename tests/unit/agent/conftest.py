# SPDX-License-Identifier: Apache-2.0
"""Hosts whose passes a test makes itself, VMs that start on them, and what makes passes fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent import loop_host
from tests.unit.agent.host import OWN, Host, MakeHost
from tests.unit.agent.machine import SimulatedResctrl
from tests.unit.agent.starting import MakeStart, Start
from tools.lab.stalls import Stalls
from vmqos.agent.observe import command_lines
from vmqos.resctrl.topology import CacheTopology


@pytest.fixture
def make_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeHost]:
    """Hosts that bear a machine which has no CPU for a while."""
    monkeypatch.setattr(command_lines, "PATIENCE", loop_host.LONG)
    made: list[Host] = []

    def make(profile: str = "cascade-lake", options: str = "") -> Host:
        root, sysfs = tmp_path / "resctrl", tmp_path / "cpu"
        root.mkdir()
        resctrl = SimulatedResctrl(root, sysfs, profile, options)
        made.append(Host(resctrl, CacheTopology.read(str(sysfs))))
        return made[0]

    yield make
    for host in made:
        host.end()


@pytest.fixture
def host(make_host: MakeHost) -> Host:
    return make_host()


@pytest.fixture
def starts() -> Iterator[list[Start]]:
    made: list[Start] = []
    yield made
    for start in made:
        start.end()


@pytest.fixture
def make_start(host: Host, starts: list[Start]) -> MakeStart:
    host.boot(OWN)
    host.settle()
    return MakeStart(host, starts)


@pytest.fixture(params=[loop_host.Host.locked, loop_host.Host.faulty], ids=["locked", "faulty"])
def trouble(request: pytest.FixtureRequest) -> loop_host.Trouble:
    """Makes passes fail: before they act, or while they do."""
    found: loop_host.Trouble = request.param
    return found


@pytest.fixture(scope="module")
def stalls() -> Iterator[Stalls]:
    """Tells what something took without the time in which this machine had no CPU for it."""
    with Stalls() as found:
        yield found
