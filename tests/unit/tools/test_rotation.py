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
from tools.rotation import BY_NAME, CHECKOUT, EACH_RUN, IN_TURNS, ROOM, Mistake, Rung

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


def test_each_rung_has_passed_within_ten_runs_that_passed() -> None:
    passed: dict[str, int] = {}
    for number in range(1, 11):
        passed |= {str(rung): number for rung in rotation.in_turn(passed)}
    assert set(passed) == set(map(str, IN_TURNS))
    for number in range(11, 100):
        passed |= {str(rung): number for rung in rotation.in_turn(passed)}
        assert min(passed.values()) > number - 10


def test_no_run_is_longer_than_there_is_room_for() -> None:
    assert all(0 < rung.minutes <= ROOM for rung in IN_TURNS)
    passed: dict[str, int] = {}
    for number in range(1, 30):
        now = rotation.in_turn(passed)
        assert rotation.minutes(now) <= ROOM
        passed |= {str(rung): number for rung in now}


def rungs(**minutes: float) -> list[Rung]:
    return [Rung(name, minutes=lasts) for name, lasts in minutes.items()]


def test_what_passed_longest_ago_comes_first_and_what_never_did_before_it() -> None:
    asked = rungs(a=5.0, b=5.0, c=5.0, d=5.0)
    assert [str(rung) for rung in rotation.in_turn({"a": 7, "b": 9, "d": 8}, asked, room=10.0)] == ["a", "c"]


def test_what_fails_stays_until_it_passes_and_no_other_waits_for_it() -> None:
    asked = rungs(fails=9.0, b=5.0, c=5.0)
    passed: dict[str, int] = {}
    ran = []
    for number in range(1, 5):
        now = [str(rung) for rung in rotation.in_turn(passed, asked, room=14.0)]
        passed |= {rung: number for rung in now if rung != "fails"}
        ran.append(now)
    assert ran == [["fails", "b"], ["fails", "c"]] * 2


def test_what_has_no_room_comes_first_the_next_time() -> None:
    asked = rungs(a=5.0, long=9.0, b=5.0)
    assert list(map(str, rotation.in_turn({}, asked, room=10.0))) == ["a", "b"]
    assert list(map(str, rotation.in_turn({"a": 1, "b": 1}, asked, room=10.0))) == ["long"]


def test_what_takes_longer_than_there_is_room_is_run_alone() -> None:
    assert list(map(str, rotation.in_turn({}, rungs(a=11.0, b=1.0), room=10.0))) == ["a"]


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


def test_what_passed_is_recorded_by_rung_and_shown(checkout: Path) -> None:
    at = rotation.at_commit(checkout)
    rotation.note("kernel:core,milan-6.12", at, "passed", 700, checkout)
    rotation.note("docs", at, "FAILED", 90, checkout)
    assert rotation.record([checkout / rotation.LOG], checkout=checkout) == ["kernel:core", "kernel:milan-6.12"]
    assert rotation.recorded(checkout)["kernel:core"][:2] == (at[:10], "3")
    shown = "\n".join(rotation.state(checkout))
    assert re.search(rf"kernel:core +passed at {at[:10]}, number 3, 0 commits ago, on", shown)
    assert re.search(r"docs +not recorded yet", shown)


def test_what_passed_is_recorded_at_once_for_whoever_asks_what_is_next(checkout: Path) -> None:
    rotation.note("kernel:core,milan-6.12", rotation.at_commit(checkout), "passed", 700, checkout)
    rotation.record([checkout / rotation.LOG], checkout=checkout)
    assert rotation.passed(checkout) == {"kernel:core": 3, "kernel:milan-6.12": 3}


def test_in_a_shallow_clone_nobody_says_how_many_commits_ago(checkout: Path, tmp_path: Path) -> None:
    rotation.note("docs", rotation.at_commit(checkout), "passed", 90, checkout)
    rotation.record([checkout / rotation.LOG], checkout=checkout)
    commit(checkout, "four")
    clone = tmp_path / "clone"
    run(tmp_path, "clone", "--quiet", "--depth=1", f"file://{checkout}", str(clone))
    assert any(re.search("docs .*, number 3, on", line) for line in rotation.state(clone))


def test_of_a_commit_at_which_ci_passed_that_commit_says_what_ran(checkout: Path) -> None:
    (checkout / "tools").mkdir()
    (checkout / "tools/rotation.py").write_text("print('docs kernel:core,was-there')")
    passed = commit(checkout, "four")
    (checkout / "tools/rotation.py").write_text("print('fuzz')")
    commit(checkout, "five")
    assert rotation.record([], [passed], checkout) == ["docs", "kernel:core"]
    commit_, number, _, seconds = rotation.recorded(checkout)["kernel:core"]
    assert (commit_, number, seconds) == (passed[:10], "4", "")
    assert run(checkout, "worktree", "list").count("\n") == 0


def test_a_commit_that_does_not_tell_what_ci_ran_is_refused(checkout: Path) -> None:
    with pytest.raises(Mistake, match=r"what CI ran at .* can't be told: .*No such file"):
        rotation.record([], ["HEAD"], checkout)
    with pytest.raises(Mistake, match="git show"):
        rotation.record([], ["no-such-commit"], checkout)


def test_a_whole_environment_that_passed_stands_for_its_parts(checkout: Path) -> None:
    rotation.note("kernel", rotation.at_commit(checkout), "passed", 2600, checkout)
    new = rotation.record([checkout / rotation.LOG], checkout=checkout)
    assert new == [str(rung) for rung in EVERY if rung.environment == "kernel"] and len(new) > 3


def test_what_passed_later_stays(checkout: Path) -> None:
    late, early = (run(checkout, "rev-parse", name) for name in ("HEAD", "HEAD~1"))
    for name in (late, early):
        log = checkout / "build" / name
        log.parent.mkdir(exist_ok=True)
        log.write_text(
            json.dumps({"rungs": ["docs"], "commit": name, "passed": True, "on": "2026-11-23", "seconds": 1})
        )
        rotation.record([log], checkout=checkout)
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
        rotation.record([checkout / rotation.LOG], checkout=checkout)
    assert not rotation.recorded(checkout)


def test_what_passed_at_a_commit_that_was_replaced_is_dropped(checkout: Path) -> None:
    for rung in ("docs", "fuzz"):
        rotation.note(rung, rotation.at_commit(checkout), "passed", 90, checkout)
    rotation.record([checkout / rotation.LOG], checkout=checkout)
    run(checkout, "reset", "--quiet", "--soft", "HEAD~1")
    now = run(checkout, "rev-parse", "HEAD")
    log = checkout / "build/now"
    log.write_text(json.dumps({"rungs": ["docs"], "commit": now, "passed": True, "on": "2026-11-23", "seconds": 1}))
    assert set(rotation.record([log], checkout=checkout)) == {"docs", "fuzz"}
    assert rotation.recorded(checkout) == {"docs": (now[:10], "2", "2026-11-23", "1")}


def test_a_log_that_is_not_there_is_told(checkout: Path) -> None:
    with pytest.raises(Mistake, match=r"tools/test writes it"):
        rotation.record([checkout / "nothing"], checkout=checkout)


def test_the_page_names_rungs_that_there_are_and_each_once() -> None:
    rows = (CHECKOUT / rotation.PAGE).read_text().splitlines()
    assert rows[0] == ",".join(rotation.HEADER)
    names = [row.split(",")[0] for row in rows[1:]]
    assert [name for name in map(str, EVERY) if name in names] == names
