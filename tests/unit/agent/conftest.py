# SPDX-License-Identifier: Apache-2.0
"""Hosts whose passes a test makes itself, and what makes passes fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent import loop_host
from tests.unit.agent.host import Host, MakeHost
from tests.unit.agent.machine import SimulatedResctrl
from tools.lab.stalls import Stalls
from vmqos.resctrl.topology import CacheTopology


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[MakeHost]:
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
