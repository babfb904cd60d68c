# SPDX-License-Identifier: Apache-2.0
"""An agent's API on a socket of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.local_api.fake_agent import FakeAgent, serving


@pytest.fixture
def socket(tmp_path: Path) -> str:
    return str(tmp_path / "agent.sock")


@pytest.fixture
def agent(socket: str) -> Iterator[FakeAgent]:
    application = FakeAgent()
    with serving(application, socket):
        yield application
