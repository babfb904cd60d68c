# SPDX-License-Identifier: Apache-2.0
"""How many cases passed where, and whether the documentation's table says so."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import table
from tests.conformance.items import ONLY, case_and_target
from tests.conformance.table import COUNTED, Place


def section_of(nodeid: str) -> str:
    """What a case's module is about, in words."""
    module = nodeid.partition("::")[0]
    return Path(module).stem.removeprefix("test_").replace("_", " ")


class Counting:
    """A plugin of pytest's: counts, and after a whole run that passed compares the table with the counts.

    With pytest-xdist it belongs into the process that hears of all tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed: Counter[Place] = Counter()
        self._complaint = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count."""
        place = case_and_target(report.nodeid)
        if place is not None and report.when == "call" and report.passed:
            _, pair, target = place
            self._passed[Place(section_of(report.nodeid), pair.machine, pair.kernel, target)] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Keep the counts, and fail the run if the table is another one."""
        if exitstatus != pytest.ExitCode.OK or not self._passed or not _is_whole(self._config):
            return
        COUNTED.parent.mkdir(parents=True, exist_ok=True)
        COUNTED.write_text(json.dumps(_rows(self._passed), indent=1), encoding="ascii")
        if table.is_out_of_date(self._passed):
            self._complaint = f"{table.PAGE} is out of date: python -m tests.conformance.table writes it anew"
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what is wrong with the table."""
        if self._complaint:
            terminalreporter.section("table of the conformance cases")
            terminalreporter.write_line(self._complaint)


def _rows(passed: Counter[Place]) -> list[list[Any]]:
    return [[*place, passed[place]] for place in sorted(passed)]


def _is_whole(config: pytest.Config) -> bool:
    """Whether nothing of the suite was left out."""
    narrowing: Iterable[Any] = (
        *(config.getoption(name, default=None) for name in ("keyword", "markexpr", "deselect", "lf", "ignore")),
        *(config.getoption(name, default=None) for name in ("ignore_glob", "maxfail")),
    )
    if any(narrowing) or ONLY in os.environ:
        return False
    here = Path(__file__).parent
    asked_for = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return any(here == path or path in here.parents for path in asked_for)
