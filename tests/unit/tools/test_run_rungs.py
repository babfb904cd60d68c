# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tools import rotation
from tools.rotation import EACH_RUN
from tools.run_rungs import LOGS, Ended, Runner

TOX = """
import pathlib, sys, time
environment, here = sys.argv[2], pathlib.Path("seen")
here.mkdir(exist_ok=True)
(here / environment).touch()
deadline = time.monotonic() + 20
if environment in ("docs", "watcher"):
    # Each waits for the other: they end only if they run at the same time.
    while not all((here / one).exists() for one in ("docs", "watcher")):
        if time.monotonic() > deadline:
            sys.exit(9)
        time.sleep(0.01)
print(f"<{environment}>", *sys.argv[3:])
sys.exit(3 if environment == "pep8" else 0)
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(rotation, "at_commit", lambda checkout: "")
    tox = tmp_path / "tox.py"
    tox.write_text(TOX)
    return Runner([sys.executable, str(tox)], 0.0, tmp_path)


def test_rungs_of_one_cpu_run_at_the_same_time_and_before_the_others(
    runner: Runner, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ended = runner.run(["py3", "docs", "watcher"])
    assert [one.word for one in ended][2:] == ["py3"] and {one.word for one in ended} == {"py3", "docs", "watcher"}
    assert all(one.has_passed for one in ended)
    shown = capfdbinary.readouterr().out.decode()
    assert re.search(r"s\] tools/test docs has ended\n<docs>\n", shown)
    assert (tmp_path / LOGS / "docs.log").read_text() == "<docs>\n"


def test_one_of_one_cpu_alone_is_shown_as_it_runs(runner: Runner, tmp_path: Path) -> None:
    assert [one.word for one in runner.run(["pep8", "py3"])] == ["pep8", "py3"]
    assert not (tmp_path / LOGS).exists()


def test_a_rung_that_fails_is_told_and_the_others_run(runner: Runner) -> None:
    failed, passed = runner.run(["pep8", "nova:plugin"])
    assert not failed.has_passed and passed.has_passed
    assert str(Ended("pep8", False, 61)) == "  pep8                             FAILED in 61 s"


def test_a_part_is_run_with_its_arguments(runner: Runner, capfd: pytest.CaptureFixture[str]) -> None:
    runner.run(["nova:plugin"])
    assert "<nova> -- tests/unit/nova_plugin" in capfd.readouterr().out


def test_what_uses_each_cpu_runs_beside_no_other() -> None:
    beside = {str(rung) for rung in EACH_RUN if rotation.uses_one_cpu(str(rung))}
    assert beside.isdisjoint({"py3:unit", "fuzz", "nova:plugin", "functional:host", "kernel:core"})
    assert beside >= {"openstack:promise", "campaign:trouble"}
    assert not rotation.uses_one_cpu("packages:container,wheel") and not rotation.uses_one_cpu("cover")
