# SPDX-License-Identifier: Apache-2.0
"""Tells at the end of a run how long the tests of each guest took: ``tools/rotation.py`` has minutes of them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.kernel.lab.needed_guest import guest_of

SUITES = ("tests/kernel/", "tests/conformance/", "tests/functional/resctrl_client/")
"""Where tests are that can be for a guest."""

WORTH_TELLING = 60.0
"""Seconds of tests in guests, from which on they are told."""


class Spent:
    """A plugin of pytest; with pytest-xdist it tells of all workers."""

    def __init__(self) -> None:
        self._seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid.startswith(SUITES):
            self._seconds[guest_of(report.nodeid) or "no guest, or one of its own"] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if sum(self._seconds.values()) < WORTH_TELLING or len(self._seconds) < 2:
            return
        terminalreporter.section("seconds of the tests in each guest")
        for guest, seconds in sorted(self._seconds.items(), key=lambda spent: -spent[1]):
            terminalreporter.write_line(f"{guest:30} {seconds:6.0f}")
