# SPDX-License-Identifier: Apache-2.0
"""The agent with a fault of its own, which shows when a VM starts."""

from __future__ import annotations

import pytest

from tests.campaign.trouble import faults
from vmqos.agent import main as agent


def main() -> int:
    """Be that agent."""
    faults.a_start_breaks_the_agent(pytest.MonkeyPatch())
    return agent.main()
