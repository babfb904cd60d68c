# SPDX-License-Identifier: Apache-2.0
"""Counts while tests run, and fails a whole run that passed and counted otherwise than the page says."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.counted.page import CHECKOUT, Page, Place

NARROWING = ("keyword", "markexpr", "deselect", "lf", "stepwise", "ignore", "ignore_glob", "guests")
"""The options of pytest that leave tests out."""


class Counting:
    """A plugin of pytest's. With pytest-xdist it belongs into the process that hears of all tests.

    :param checkout: the source tree whose page it is.
    """

    def __init__(self, config: pytest.Config, page: Page, checkout: Path = CHECKOUT) -> None:
        self._config = config
        self._page = page
        self._checkout = checkout
        self._passed: Counter[Place] = Counter()
        self._complaint = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count."""
        if report.when == "call" and report.passed:
            self._passed.update(self._page.places(report))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Keep the counts, and fail the run if the page says something else."""
        if exitstatus != pytest.ExitCode.OK or not self._passed or not self._is_whole():
            return
        self._page.keep(self._passed, self._checkout)
        if self._page.is_out_of_date(self._passed, self._checkout):
            self._complaint = f"{self._page.path} is out of date: {self._page.command} writes it anew"
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what is wrong with the page."""
        if self._complaint:
            terminalreporter.section("pages that are made from this run")
            terminalreporter.write_line(self._complaint)

    def _is_whole(self) -> bool:
        """Whether nothing of the suite was left out."""
        config = self._config
        if not os.environ.keys().isdisjoint(self._page.narrowing):
            return False
        if any(config.getoption(name, default=None) for name in NARROWING):
            return False
        suite = CHECKOUT / self._page.suite
        asked_for = [Path(config.invocation_params.dir, one.partition("::")[0]).resolve() for one in config.args]
        return any(path in (suite, *suite.parents) for path in asked_for)
