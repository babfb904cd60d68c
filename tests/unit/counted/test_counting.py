# SPDX-License-Identifier: Apache-2.0
"""Only a whole run that passed is written down, and a page that says otherwise fails it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tests.counted.counting import Counting
from tests.counted.page import CHECKOUT, Page

SUITE = "tests/conformance"
MODULE = f"{SUITE}/cases/test_cpus.py"
ONLY = "VMQOS_TEST_ONLY_A_PART"
HERE = ("cpus", "milan")
PAGE = Page(
    path=Path("doc/page.rst"),
    counts=Path("doc/build/counts.json"),
    suite=Path(SUITE),
    places=lambda report: [HERE] if report.nodeid.startswith(MODULE) else [],
    text=lambda passed: f"{dict(passed)}\n",
    command="write it",
    narrowing=(ONLY,),
)


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree of a user's own, and a run that nobody narrowed."""
    monkeypatch.delenv(ONLY, raising=False)
    (tmp_path / "doc").mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path, 1000, 1000)
    return tmp_path


def run(
    checkout: Path,
    *outcomes: Literal["passed", "failed", "skipped"],
    status: pytest.ExitCode = pytest.ExitCode.OK,
    asked_for: str = SUITE,
    module: str = MODULE,
    **options: Any,
) -> int:
    """Let tests of one place end in these ways; the run's exit status."""
    config: Any = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default),
        invocation_params=SimpleNamespace(dir=CHECKOUT),
        args=[asked_for],
    )
    counting = Counting(config, PAGE, checkout)
    for number, outcome in enumerate(outcomes):
        nodeid = f"{module}::test_{number}"
        for when in ("setup", "call", "teardown"):
            ended = outcome if when == "call" else "passed"
            counting.pytest_runtest_logreport(pytest.TestReport(nodeid, (module, 1, ""), {}, ended, None, when))
    session: Any = SimpleNamespace(exitstatus=status)
    counting.pytest_sessionfinish(session, status)
    lines: list[str] = []
    counting.pytest_terminal_summary(SimpleNamespace(section=lambda title: None, write_line=lines.append))
    assert lines == (["doc/page.rst is out of date: write it writes it anew"] if session.exitstatus != status else [])
    return int(session.exitstatus)


def write_page(checkout: Path, passed: int) -> None:
    """Let the page say that so many passed."""
    PAGE.write({HERE: passed}, checkout)


def test_a_whole_run_is_counted_and_passes_if_the_page_says_the_same(checkout: Path) -> None:
    write_page(checkout, 2)
    assert run(checkout, "passed", "passed") == pytest.ExitCode.OK
    assert json.loads((checkout / PAGE.counts).read_text(encoding="ascii")) == [[*HERE, 2]]


def test_what_is_written_down_is_the_trees_owners(checkout: Path) -> None:
    run(checkout, "passed")
    owner = checkout.stat().st_uid
    assert {(checkout / path).stat().st_uid for path in (PAGE.counts.parent, PAGE.counts)} == {owner}


def test_a_run_with_other_counts_than_the_page_fails(checkout: Path) -> None:
    write_page(checkout, 2)
    assert run(checkout, "passed") == pytest.ExitCode.TESTS_FAILED
    assert run(checkout, "passed", "passed", "passed") == pytest.ExitCode.TESTS_FAILED


def test_a_test_that_was_skipped_did_not_pass(checkout: Path) -> None:
    write_page(checkout, 2)
    assert run(checkout, "passed", "skipped") == pytest.ExitCode.TESTS_FAILED


def test_a_run_that_failed_is_not_written_down(checkout: Path) -> None:
    status = pytest.ExitCode.TESTS_FAILED
    assert run(checkout, "passed", "failed", status=status) == status
    assert not (checkout / PAGE.counts).exists()


@pytest.mark.parametrize(
    "narrowed",
    [
        {"asked_for": MODULE},
        {"asked_for": f"{MODULE}::test_0"},
        {"asked_for": "tests/unit"},
        {"keyword": "milan"},
        {"markexpr": "guest"},
        {"deselect": ["x"]},
        {"guests": ["core"]},
        {"ignore": ["x"]},
        {"lf": True},
        {"stepwise": True},
    ],
    ids=str,
)
def test_a_part_of_the_suite_is_not_written_down(checkout: Path, narrowed: dict[str, Any]) -> None:
    assert run(checkout, "passed", **narrowed) == pytest.ExitCode.OK
    assert not (checkout / PAGE.counts).exists()


def test_what_the_environment_narrows_is_not_written_down(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ONLY, "milan")
    assert run(checkout, "passed") == pytest.ExitCode.OK
    assert not (checkout / PAGE.counts).exists()


@pytest.mark.parametrize("asked_for", [SUITE, "tests", "."])
def test_the_suite_or_what_it_is_in_is_whole(checkout: Path, asked_for: str) -> None:
    run(checkout, "passed", asked_for=asked_for)
    assert (checkout / PAGE.counts).exists()


def test_a_run_of_tests_that_count_for_nothing_leaves_everything_as_it_is(checkout: Path) -> None:
    assert run(checkout, "passed", module="tests/conformance/test_table.py") == pytest.ExitCode.OK
    assert not (checkout / PAGE.counts).exists()


def test_what_was_written_down_is_read_as_it_was_counted(checkout: Path) -> None:
    assert PAGE.kept(checkout) is None
    run(checkout, "passed", "passed")
    assert PAGE.kept(checkout) == {HERE: 2}
