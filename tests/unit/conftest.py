# SPDX-License-Identifier: Apache-2.0
"""What holds for all unit tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.unit.clock import Clock

# How long an example takes says more about the machine, and what else it is doing, than about the code. How many
# examples do not fit is chance. tox has each run try the same examples: a run tells of the change that it is about.
settings.register_profile(
    "unhurried",
    deadline=None,
    derandomize=os.environ.get("VMQOS_TEST_EXAMPLES") == "same",
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("unhurried")


@pytest.fixture
def clock() -> Clock:
    """Time that passes when the test says so."""
    return Clock()
