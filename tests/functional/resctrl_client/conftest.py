# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a fresh resctrl and processes to put into its groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.resctrl_client.mounted import Sleepers, mounted, sleepers
from vmqos.resctrl.filesystem import Filesystem


@pytest.fixture
def fs() -> Iterator[Filesystem]:
    """A fresh resctrl without mount options."""
    with mounted() as found:
        yield found


@pytest.fixture
def three_sleepers() -> Iterator[Sleepers]:
    """A process with three threads."""
    with sleepers(3) as found:
        yield found
