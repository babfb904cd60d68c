# SPDX-License-Identifier: Apache-2.0
"""How many cases passed where, and whether the documentation's table says so."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import table
from tests.conformance.items import ONLY, case_and_place
from tests.conformance.table import COUNTED, Place

NARROWING = ("keyword", "markexpr", "deselect", "lf", "stepwise", "ignore", "ignore_glob")
"""The options of pytest that leave tests out."""


class Counting:
    """A plugin of pytest's: counts, and after a whole run that passed compares the table with the counts.

    With pytest-xdist it belongs into the process that hears of all tests.

    :param checkout: the source tree whose table it is.
    """

    def __init__(self, config: pytest.Config, checkout: Path = table.CHECKOUT) -> None:
        self._config = config
        self._checkout = checkout
        self._passed: Counter[Place] = Counter()
        self._complaint = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count."""
        place = case_and_place(report.nodeid)
        if place is not None and report.when == "call" and report.passed:
            case, where = place
            section = table.section_of(case.partition("::")[0])
            self._passed[Place(section, where.pair.machine, where.pair.kernel, where.target)] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Keep the counts, and fail the run if the table is another one."""
        if exitstatus != pytest.ExitCode.OK or not self._passed or not _is_whole(self._config):
            return
        _keep(self._passed, self._checkout)
        if table.is_out_of_date(self._passed, self._checkout):
            self._complaint = f"{table.PAGE} is out of date: python -m tests.conformance.table writes it anew"
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what is wrong with the table."""
        if self._complaint:
            terminalreporter.section("table of the conformance cases")
            terminalreporter.write_line(self._complaint)


def _keep(passed: Counter[Place], checkout: Path) -> None:
    """Write the counts down. The run is root's; what it leaves in a user's tree must be the user's."""
    rows = [[*place, passed[place]] for place in sorted(passed)]
    owner, counted = os.stat(checkout), checkout / COUNTED
    if not counted.parent.exists():
        counted.parent.mkdir()
        os.chown(counted.parent, owner.st_uid, owner.st_gid)
    counted.write_text(json.dumps(rows, indent=1), encoding="ascii")
    os.chown(counted, owner.st_uid, owner.st_gid)


def _is_whole(config: pytest.Config) -> bool:
    """Whether nothing of the suite was left out."""
    if ONLY in os.environ or any(config.getoption(name, default=None) for name in NARROWING):
        return False
    here = Path(__file__).parent
    asked_for = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return any(here == path or path in here.parents for path in asked_for)
