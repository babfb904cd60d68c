# SPDX-License-Identifier: Apache-2.0
"""The agent with a fault of its own: ``FAULT ...``, a function of :mod:`tests.campaign.trouble.faults`."""

from __future__ import annotations

import sys

import pytest

from tests.campaign.trouble import faults
from vmqos.agent import main as agent


def main() -> int:
    """Be that agent."""
    getattr(faults, sys.argv.pop(1))(pytest.MonkeyPatch())
    return agent.main()
