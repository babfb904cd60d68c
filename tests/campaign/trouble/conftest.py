# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaign.trouble import table
from tests.campaign.trouble.story import Outcome

_OUTCOMES = pytest.StashKey[dict[str, Outcome]]()


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """What came of the stories, by machine."""
    return request.config.stash.setdefault(_OUTCOMES, {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what came of the stories."""
    outcomes = config.stash.get(_OUTCOMES, None)
    if outcomes:
        terminalreporter.section("random trouble")
        for line in table.lines(outcomes):
            terminalreporter.write_line(line)
