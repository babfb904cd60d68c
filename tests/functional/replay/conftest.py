# SPDX-License-Identifier: Apache-2.0
"""The tables of what was replayed, at the end of the run."""

from __future__ import annotations

from typing import Any

import pytest

TABLE = "replay-table"
"""The name under which a test hands over its table."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print them, however the tests were spread over processes."""
    reports: list[pytest.TestReport] = []
    for outcome in ("passed", "failed"):
        reports.extend(terminalreporter.stats.get(outcome, []))
    tables = [
        value for report in reports if report.when == "call" for name, value in report.user_properties if name == TABLE
    ]
    if tables:
        terminalreporter.section("recordings replayed on the simulator")
        for table in tables:
            terminalreporter.write_line(str(table))
