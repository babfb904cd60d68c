# SPDX-License-Identifier: Apache-2.0
"""What a run of tests in guests tells at its end: the seconds of each guest's tests, for tools/rotation.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernel.lab.spent import Spent

IN_MILAN = "tests/kernel/agent/test_start.py::test_a[milan-6.12]"
IN_CASCADE_LAKE = "tests/conformance/test_masks.py::test_b[cascade-lake-newest-some]"
IN_NONE = "tests/kernel/test_plugin.py::test_c"
ELSEWHERE = "tests/unit/test_reason.py::test_d[milan-6.12]"


class Reporter:
    """The end of pytest's output."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.titles.append(title)

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def told(*spent: tuple[str, float]) -> Reporter:
    """What is told after these tests, or parts of them, with the seconds that each took."""
    plugin, reporter = Spent(), Reporter()
    for nodeid, seconds in spent:
        report: Any = SimpleNamespace(nodeid=nodeid, duration=seconds)
        plugin.pytest_runtest_logreport(report)
    plugin.pytest_terminal_summary(reporter)
    return reporter


def test_the_seconds_of_each_guest_are_told_the_longest_first() -> None:
    # Set-up, call and tear-down of a test are reported one by one.
    reporter = told((IN_CASCADE_LAKE, 20.4), (IN_MILAN, 40.0), (IN_MILAN, 2.6), (IN_NONE, 5.0), (ELSEWHERE, 900.0))
    assert reporter.titles == ["seconds of the tests in each guest"]
    assert [line.rsplit(maxsplit=1) for line in reporter.lines] == [
        ["milan-6.12", "43"],
        ["cascade-lake-newest", "20"],
        ["no guest, or one of its own", "5"],
    ]
    assert len({len(line) for line in reporter.lines}) == 1, "the numbers stand in a column"


@pytest.mark.parametrize(
    "spent",
    [
        [],
        [(ELSEWHERE, 100.0), (IN_NONE, 100.0)],
        [(IN_MILAN, 30.0), (IN_CASCADE_LAKE, 29.0)],
    ],
    ids=["no test in a guest", "one kind alone", "less than a minute"],
)
def test_what_tells_nothing_about_guests_is_not_told(spent: list[tuple[str, float]]) -> None:
    reporter = told(*spent)
    assert (reporter.titles, reporter.lines) == ([], [])
