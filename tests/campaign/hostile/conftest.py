# SPDX-License-Identifier: Apache-2.0
"""One stage and one witness for the whole campaign, and the table at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaign.hostile import table
from tests.campaign.hostile.campaign import Campaign
from tests.campaign.hostile.families import FAMILIES, MODULES
from tests.campaign.hostile.outsider import preload
from tests.campaign.hostile.stage import Stage
from tests.campaign.hostile.witness import WITHIN, Witness
from tests.functional.conftest import _session_libvirt, workspace
from tools.lab import vms
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.workspace import Workspace

__all__ = ["_session_libvirt", "campaign", "workspace"]

_CAMPAIGN = pytest.StashKey[Campaign]()


@pytest.fixture(scope="session")
def campaign(
    request: pytest.FixtureRequest, workspace: Workspace, _session_libvirt: PrivateLibvirt
) -> Iterator[Campaign]:
    """The campaign, after its witness has seen how long everything takes without any attack."""
    preload(*MODULES)
    stage = Stage(workspace, _session_libvirt)
    try:
        witness = Witness(stage)
        witness.calibrate()
        begun = Campaign(stage, witness)
        request.config.stash[_CAMPAIGN] = begun
        yield begun
    finally:
        connection = _session_libvirt.connection()
        for domain in connection.listAllDomains():
            vms.remove(connection, domain.UUIDString())
        stage.close()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what came of the inputs."""
    campaign = config.stash.get(_CAMPAIGN, None)
    if campaign is None:
        return
    terminalreporter.section("hostile input")
    longest = ", ".join(f"{what} {took:.2f} s" for what, took in campaign.witness.calm.seconds.items())
    terminalreporter.write_line(f"longest without any attack: {longest}")
    terminalreporter.write_line(f"longest in the trials without harm, {WITHIN} s are allowed:")
    for operation, (time, names) in campaign.longest.items():
        terminalreporter.write_line(f"  {operation} {time}: {names[:100]}")
    for late in campaign.late_once:
        terminalreporter.write_line(f"late once, and in time when it was tried again: {late}")
    for line in table.lines(FAMILIES, campaign.outcomes):
        terminalreporter.write_line(line)
