# SPDX-License-Identifier: Apache-2.0
"""Only a whole run that passed is written down, and a table that says otherwise fails it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tests.conformance.counts import Counting
from tests.conformance.items import ONLY
from tests.conformance.table import COUNTED, PAGE, Place, page

SUITE = "tests/conformance"
MODULE = f"{SUITE}/cases/test_cpus.py"
ROOT = Path(__file__).parents[2]
HERE = Place("cpus", "milan", "6.12", "kernel")


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree of a user's own, and a run that nobody narrowed."""
    monkeypatch.delenv(ONLY, raising=False)
    (tmp_path / "doc/source/reference").mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(tmp_path, 1000, 1000)
    return tmp_path


def run(
    checkout: Path,
    *outcomes: Literal["passed", "failed", "skipped"],
    status: pytest.ExitCode = pytest.ExitCode.OK,
    asked_for: str = SUITE,
    **options: Any,
) -> int:
    """Let a case of one place end in these ways; the run's exit status."""
    config: Any = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default),
        invocation_params=SimpleNamespace(dir=ROOT),
        args=[asked_for],
    )
    counting = Counting(config, checkout)
    for number, outcome in enumerate(outcomes):
        nodeid = f"{MODULE}::test_{number}[milan-6.12-kernel]"
        for when in ("setup", "call", "teardown"):
            ended = outcome if when == "call" else "passed"
            counting.pytest_runtest_logreport(pytest.TestReport(nodeid, (MODULE, 1, ""), {}, ended, None, when))
    session: Any = SimpleNamespace(exitstatus=status)
    counting.pytest_sessionfinish(session, status)
    return int(session.exitstatus)


def write_page(checkout: Path, passed: int) -> None:
    """Let the page say that so many passed."""
    (checkout / PAGE).write_text(page({HERE: passed}), encoding="utf-8")


def test_a_whole_run_is_counted_and_passes_if_the_page_says_the_same(checkout: Path) -> None:
    write_page(checkout, 2)
    assert run(checkout, "passed", "passed") == pytest.ExitCode.OK
    assert json.loads((checkout / COUNTED).read_text(encoding="ascii")) == [[*HERE, 2]]


def test_what_is_written_down_is_the_trees_owners(checkout: Path) -> None:
    run(checkout, "passed")
    owner = checkout.stat().st_uid
    assert {(checkout / path).stat().st_uid for path in (COUNTED.parent, COUNTED)} == {owner}


def test_a_run_with_other_counts_than_the_page_fails(checkout: Path) -> None:
    write_page(checkout, 2)
    assert run(checkout, "passed") == pytest.ExitCode.TESTS_FAILED
    assert run(checkout, "passed", "passed", "passed") == pytest.ExitCode.TESTS_FAILED


def test_a_case_that_was_skipped_did_not_pass(checkout: Path) -> None:
    write_page(checkout, 2)
    assert run(checkout, "passed", "skipped") == pytest.ExitCode.TESTS_FAILED


def test_a_run_that_failed_is_not_written_down(checkout: Path) -> None:
    status = pytest.ExitCode.TESTS_FAILED
    assert run(checkout, "passed", "failed", status=status) == status
    assert not (checkout / COUNTED).exists()


@pytest.mark.parametrize(
    "narrowed",
    [
        {"asked_for": MODULE},
        {"asked_for": f"{MODULE}::test_0"},
        {"asked_for": "tests/unit"},
        {"keyword": "milan"},
        {"markexpr": "guest"},
        {"deselect": ["x"]},
        {"ignore": ["x"]},
        {"lf": True},
        {"stepwise": True},
    ],
    ids=str,
)
def test_a_part_of_the_suite_is_not_written_down(checkout: Path, narrowed: dict[str, Any]) -> None:
    assert run(checkout, "passed", **narrowed) == pytest.ExitCode.OK
    assert not (checkout / COUNTED).exists()


def test_one_place_alone_is_not_written_down(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ONLY, "milan-6.12-simulator")
    assert run(checkout, "passed") == pytest.ExitCode.OK
    assert not (checkout / COUNTED).exists()


@pytest.mark.parametrize("asked_for", [SUITE, "tests", "."])
def test_the_suite_or_what_it_is_in_is_whole(checkout: Path, asked_for: str) -> None:
    run(checkout, "passed", asked_for=asked_for)
    assert (checkout / COUNTED).exists()
