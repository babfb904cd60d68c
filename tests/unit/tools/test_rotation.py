# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kernel.lab import machines
from tests.kernel.lab.needed_guest import part_of
from tools import rotation
from tools.rotation import BY_NAME, CHECKOUT, EACH_RUN, HOW_MANY, IN_TURNS, ROOM, Mistake, Rung

EVERY = (*EACH_RUN, *IN_TURNS, *BY_NAME)
NO_TESTS = {"cover", "docs", "genconfig", "releasenotes"}
"""Environments of tox that make something; docs is a rung nevertheless."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with three commits, and the page."""
    page = tmp_path / rotation.PAGE
    page.parent.mkdir(parents=True)
    page.write_text(f"{','.join(rotation.HEADER)}\n")
    (tmp_path / ".gitignore").write_text("build/\n")
    run(tmp_path, "init", "--quiet", "--initial-branch=main")
    for subject in ("one", "two", "three"):
        commit(tmp_path, subject)
    return tmp_path


def run(checkout: Path, *command: str) -> str:
    names = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-C", checkout, *command], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(checkout: Path, subject: str) -> str:
    run(checkout, "add", "--all")
    run(checkout, "commit", "--quiet", "--allow-empty", "--message", subject)
    return run(checkout, "rev-parse", "HEAD")


def test_within_any_ten_commits_each_rung_runs() -> None:
    spread = rotation.runs()
    for first in range(100):
        seen = {rung for number in range(first, first + 10) for rung in spread[number % len(spread)]}
        assert seen == set(IN_TURNS)


@pytest.mark.parametrize("step", [step for step in range(2, 20) if step not in HOW_MANY])
def test_each_rung_runs_where_only_the_last_of_some_commits_is_tested(step: int) -> None:
    spread = rotation.runs()
    if step % len(spread):
        assert {number * step % len(spread) for number in range(10)} == set(range(len(spread)))


def test_no_run_is_longer_than_there_is_room_for() -> None:
    assert all(rung.minutes > 0 for rung in IN_TURNS)
    assert max(map(rotation.minutes, rotation.runs())) <= ROOM


def test_rungs_that_take_too_long_are_refused() -> None:
    with pytest.raises(Mistake, match="make parts smaller"):
        rotation.runs([Rung("x", str(number), minutes=9.0) for number in range(8)], room=10.0)


def test_a_further_rung_takes_one_line() -> None:
    spread = rotation.runs((*IN_TURNS, Rung("another", minutes=5.0)))
    assert len(spread) in HOW_MANY and any(rung.environment == "another" for run in spread for rung in run)


def test_every_environment_of_tox_with_tests_is_a_rung() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(CHECKOUT / "tox.ini")
    there = {name.removeprefix("testenv:") for name in tox.sections() if name.startswith("testenv:")} | {"py3"}
    assert {rung.environment for rung in EVERY} | NO_TESTS == there


def test_the_parts_of_the_tests_in_guests_are_parts_that_pytest_knows() -> None:
    # That each part that has tests is there, tests/kernel/test_lab.py sees.
    parts = [rung.part for rung in EVERY if rung.environment == "kernel"]
    assert len(parts) == len(set(parts)) and set(parts) <= set(machines.PARTS)


@pytest.mark.parametrize(
    ("nodeid", "is_long", "part"),
    [
        ("test_it[goldmont-6.12]", False, "core"),
        ("test_it[milan-kvm-6.12-shared]", True, "long-milan-kvm-6.12"),
        ("test_it[cascade-lake-6.12]", False, "cascade-lake-6.12"),
        ("test_it[cascade-lake-6.12-mba]", True, "long-cascade-lake-6.12"),
        ("test_it[cascade-lake-newest]", False, "cascade-lake-newest"),
        ("test_it[broadwell-6.12]", True, "broadwell-6.12"),
        ("test_it[]", False, "core"),
        ("test_it", True, "long"),
    ],
)
def test_each_test_is_in_one_part(nodeid: str, is_long: bool, part: str) -> None:
    assert part_of(f"tests/kernel/test_lab.py::{nodeid}", is_long=is_long) == part
    assert part in machines.PARTS


@pytest.mark.parametrize(
    ("environment", "folder", "rungs"),
    [
        ("openstack", "openstack", IN_TURNS),
        ("packages", "packages", IN_TURNS),
        ("py3", "worth", EVERY),
        ("functional", "functional", EVERY),
    ],
)
def test_every_module_of_an_environment_in_parts_is_in_a_part(
    environment: str, folder: str, rungs: Sequence[Rung]
) -> None:
    parts = [Path(path) for rung in rungs if rung.environment == environment for path in rung.arguments]
    modules = [path.relative_to(CHECKOUT) for path in (CHECKOUT / "tests" / folder).glob("**/test_*.py")]
    assert modules
    for module in modules:
        assert sum(part in (module, *module.parents) for part in parts) == 1, module


def test_a_part_names_what_there_is() -> None:
    for rung in EVERY:
        assert bool(rung.part) == bool(rung.arguments)
        assert all((CHECKOUT / word).exists() for word in rung.arguments if not word.startswith("-"))


def test_parts_of_an_environment_become_one_word() -> None:
    rungs = [Rung("pep8"), Rung("kernel", "a"), Rung("openstack", "cloud"), Rung("kernel", "b")]
    assert rotation.words(rungs) == ["pep8", "kernel:a,b", "openstack:cloud"]


def test_the_arguments_of_parts_are_each_given_once() -> None:
    given = rotation.arguments("kernel:core,milan-6.12")
    assert given[0] == "--guests=core" and given.count("tests/kernel") == 1 and "--guests=milan-6.12" in given


def test_a_whole_environment_has_its_own_arguments() -> None:
    assert rotation.arguments("kernel") == rotation.arguments("cover") == []


@pytest.mark.parametrize("word", ["kernel:pentium", "docs:fast", "py4:fast"])
def test_a_part_that_does_not_exist_is_told(word: str) -> None:
    with pytest.raises(Mistake, match=r"there is no part .* there are: (core|none)"):
        rotation.arguments(word)


def test_the_commits_number_decides(checkout: Path) -> None:
    number, why = rotation.turn(checkout)
    assert number == 3 % len(rotation.runs()) and "has the number 3" in why


def test_in_a_shallow_clone_the_commits_name_decides(checkout: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run(tmp_path, "clone", "--quiet", "--depth=1", f"file://{checkout}", str(clone))
    number, why = rotation.turn(clone)
    assert number == int(run(clone, "rev-parse", "HEAD")[:8], 16) % len(rotation.runs()) and "shallow" in why


def test_without_a_repository_the_day_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 86400.0 * 20001 + 5)
    number, why = rotation.turn(tmp_path)
    assert number == 20001 % len(rotation.runs()) and "day" in why


def test_what_passed_is_recorded_by_rung_and_shown(checkout: Path) -> None:
    at = rotation.at_commit(checkout)
    rotation.note("kernel:core,milan-6.12", at, "passed", 700, checkout)
    rotation.note("docs", at, "FAILED", 90, checkout)
    assert rotation.record([checkout / rotation.LOG], checkout) == ["kernel:core", "kernel:milan-6.12"]
    assert rotation.recorded(checkout)["kernel:core"][:2] == (at[:10], "3")
    shown = "\n".join(rotation.state(checkout))
    assert re.search(rf"kernel:core +passed at {at[:10]}, number 3, 0 commits ago, on", shown)
    assert re.search(r"docs +not recorded yet", shown)


def test_a_whole_environment_that_passed_stands_for_its_parts(checkout: Path) -> None:
    rotation.note("kernel", rotation.at_commit(checkout), "passed", 2600, checkout)
    new = rotation.record([checkout / rotation.LOG], checkout)
    assert new == [str(rung) for rung in EVERY if rung.environment == "kernel"] and len(new) > 3


def test_what_passed_later_stays(checkout: Path) -> None:
    late, early = (run(checkout, "rev-parse", name) for name in ("HEAD", "HEAD~1"))
    for name in (late, early):
        log = checkout / "build" / name
        log.parent.mkdir(exist_ok=True)
        log.write_text(
            json.dumps({"rungs": ["docs"], "commit": name, "passed": True, "on": "2026-11-23", "seconds": 1})
        )
        rotation.record([log], checkout)
    assert rotation.recorded(checkout)["docs"][0] == late[:10]


def test_a_tree_with_changes_is_not_noted(checkout: Path) -> None:
    at = rotation.at_commit(checkout)
    assert at
    (checkout / "new").write_text("")
    assert not rotation.at_commit(checkout)
    rotation.note("docs", at, "passed", 90, checkout)
    assert not (checkout / rotation.LOG).exists()


def test_what_another_commit_was_when_it_ended_is_not_noted(checkout: Path) -> None:
    at = rotation.at_commit(checkout)
    commit(checkout, "four")
    rotation.note("docs", at, "passed", 90, checkout)
    assert not (checkout / rotation.LOG).exists()


def test_what_passed_elsewhere_is_not_recorded(checkout: Path) -> None:
    run(checkout, "switch", "--quiet", "--create", "other")
    commit(checkout, "four")
    rotation.note("docs", rotation.at_commit(checkout), "passed", 90, checkout)
    run(checkout, "switch", "--quiet", "main")
    with pytest.raises(Mistake, match="is not behind this commit"):
        rotation.record([checkout / rotation.LOG], checkout)
    assert not rotation.recorded(checkout)


def test_what_passed_at_a_commit_that_was_replaced_is_dropped(checkout: Path) -> None:
    for rung in ("docs", "fuzz"):
        rotation.note(rung, rotation.at_commit(checkout), "passed", 90, checkout)
    rotation.record([checkout / rotation.LOG], checkout)
    run(checkout, "reset", "--quiet", "--soft", "HEAD~1")
    now = run(checkout, "rev-parse", "HEAD")
    log = checkout / "build/now"
    log.write_text(json.dumps({"rungs": ["docs"], "commit": now, "passed": True, "on": "2026-11-23", "seconds": 1}))
    assert set(rotation.record([log], checkout)) == {"docs", "fuzz"}
    assert rotation.recorded(checkout) == {"docs": (now[:10], "2", "2026-11-23", "1")}


def test_a_log_that_is_not_there_is_told(checkout: Path) -> None:
    with pytest.raises(Mistake, match=r"tools/test writes it"):
        rotation.record([checkout / "nothing"], checkout)


def test_the_page_names_rungs_that_there_are_and_each_once() -> None:
    rows = (CHECKOUT / rotation.PAGE).read_text().splitlines()
    assert rows[0] == ",".join(rotation.HEADER)
    names = [row.split(",")[0] for row in rows[1:]]
    assert [name for name in map(str, EVERY) if name in names] == names
