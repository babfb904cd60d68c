# SPDX-License-Identifier: Apache-2.0
"""Which tests CI runs at this commit, and which of them passed last at which commit.

A *rung* is an environment of tox, such as ``nova31``, or a part of one, such as ``openstack:cloud``. CI runs the rungs
of :data:`EACH_RUN` at each commit. Those of :data:`IN_TURNS` are too many for that: of them it runs the ones that
passed longest ago, according to the page that is a part of the commit. ``tools/test`` asks this module what to run.

Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
LOG = Path("build/rungs.jsonl")
"""Where ``tools/test`` writes what it ran, a line for each word of its command line."""
PAGE = Path("doc/source/contributor/rungs.csv")
HEADER = ("Rung", "Passed at commit", "Number", "On", "Seconds")

ROOM = 15.0
"""Minutes that CI has for the rungs in turns."""


class Mistake(Exception):
    """What was asked for can't be; the message says why."""


@dataclass(frozen=True, slots=True)
class Rung:
    """Tests that are run together.

    :ivar environment: of tox.
    :ivar part: which part of the environment's tests; empty for all.
    :ivar arguments: with which pytest runs the part.
    :ivar minutes: by which a run of CI becomes longer, about, on two quiet cores from nothing.
    :ivar uses_one_cpu: whether most of its time it leaves the other CPUs of the machine to others.
    """

    environment: str
    part: str = ""
    arguments: tuple[str, ...] = ()
    minutes: float = 0.0
    uses_one_cpu: bool = False

    def __str__(self) -> str:
        return f"{self.environment}:{self.part}" if self.part else self.environment


def _guests(part: str, minutes: float = 0.0) -> Rung:
    """Tests in guests (``tests/kernel/pytest_guest.py`` knows the parts)."""
    suites = ("tests/kernel", "tests/conformance", "tests/functional/resctrl_client")
    return Rung("kernel", part, (f"--guests={part}", *suites), minutes)


EACH_RUN = (
    Rung("openstack", "promise", ("tests/openstack/cloud/test_promise.py",), uses_one_cpu=True),
    Rung("campaign", "trouble", ("tests/campaign/trouble",), uses_one_cpu=True),
    Rung("docs", uses_one_cpu=True),
    Rung("pep8", uses_one_cpu=True),
    Rung("fuzz"),
    Rung("py3", "unit", ("tests/unit", "tests/devstack/test_phases.py", "tests/worth/test_report.py")),
    Rung("nova", "plugin", ("tests/unit/nova_plugin",)),
    Rung(
        "functional",
        "host",
        (
            "tests/functional/agent",
            "tests/functional/cli",
            "tests/functional/gateway",
            "tests/functional/hypervisor",
            "tests/functional/replay",
            "tests/functional/resctrl_client",
            "tests/functional/telemetry",
            "tests/functional/test_demo.py",
            "tests/functional/test_lab.py",
            "tests/functional/test_units.py",
        ),
    ),
    _guests("core"),
)

IN_TURNS = (
    # What is long in it: some mixes of VMs are modelled and judged.
    Rung("py3", "worth", ("tests/worth/neighbours", "tests/worth/size"), 2.0),
    # Its bound is a second of the wall clock, so it has the machine for itself.
    Rung("campaign", "hostile", ("tests/campaign/hostile",), 10.0),
    # A real browser: it takes as much CPU time as all other functional tests.
    Rung("functional", "page", ("tests/page",), 8.0),
    # A verdict takes half a minute of what VMs do, and a trial as long.
    Rung("functional", "insight", ("tests/functional/insight",), 5.0),
    _guests("long", 5.5),
    _guests("cascade-lake-6.12", 6.5),
    _guests("long-cascade-lake-6.12", 7.0),
    _guests("long-milan-kvm-6.12", 7.0),
    _guests("cascade-lake-newest", 5.0),
    _guests("broadwell-6.12", 9.0),
    _guests("broadwell-newest", 2.5),
    _guests("sapphire-rapids-6.12", 2.5),
    _guests("sapphire-rapids-newest", 5.5),
    _guests("goldmont-newest", 4.0),
    _guests("milan-6.12", 3.0),
    _guests("milan-newest", 3.0),
    _guests("milan-abmc-newest", 1.0),
    _guests("milan-shared-6.12", 6.0),
    _guests("genoa-6.12", 2.5),
    _guests("genoa-newest", 8.0),
    Rung("openstack", "cloud", ("tests/openstack/cloud",), 9.0, uses_one_cpu=True),
    Rung("openstack", "placement", ("tests/openstack/placement",), 5.5, uses_one_cpu=True),
    Rung("openstack", "telemetry", ("tests/openstack/telemetry",), 2.5, uses_one_cpu=True),
    Rung("openstack", "notifications", ("tests/openstack/notifications",), 2.0, uses_one_cpu=True),
    Rung("nova", "install", ("tests/install",), 2.0),
    Rung("nova31", minutes=2.0),
    Rung("nova32", minutes=3.0),
    Rung("nova33", minutes=2.5),
    Rung("watcher", minutes=0.5, uses_one_cpu=True),
    Rung(
        "packages",
        "debian-rpm",
        ("tests/packages/test_debian.py", "tests/packages/test_rpm.py"),
        2.5,
        uses_one_cpu=True,
    ),
    Rung("packages", "container", ("tests/packages/test_container.py",), 1.5, uses_one_cpu=True),
    Rung(
        "packages",
        "wheel",
        ("-n2", "--dist=loadfile", "tests/packages/test_release.py", "tests/packages/test_wheel.py"),
        3.0,
    ),
)

BY_NAME = (Rung("devstack"), Rung("worth"), Rung("campaign-whole"))
"""What only ``tools/test all`` runs: the first fetches DevStack from opendev.org, the second makes a report, the third
takes an hour."""


def in_turn(passed: Mapping[str, int], rungs: Sequence[Rung] = IN_TURNS, room: float = ROOM) -> list[Rung]:
    """The rungs whose turn it is: those that passed longest ago, as many as there is room for.

    A rung that fails is not recorded as passed. So it stays among them until it passes.

    :param passed: the number of the commit at which a rung passed last, by the rung's name; those that never did come
        first.
    :param room: in minutes. One rung is run even if it takes longer.
    """
    found: list[Rung] = []
    for rung in sorted(rungs, key=lambda rung: passed.get(str(rung), 0)):
        if not found or minutes([*found, rung]) <= room:
            found.append(rung)
    return sorted(found, key=rungs.index)


def minutes(run: Iterable[Rung]) -> float:
    """By how much these rungs make a run of CI longer."""
    return sum(rung.minutes for rung in run)


def words(rungs: Iterable[Rung]) -> list[str]:
    """These rungs as arguments of ``tools/test``, the parts of an environment in one: ``kernel:core,goldmont-6.12``."""
    found: dict[str, list[str]] = {}
    for rung in rungs:
        found.setdefault(rung.environment, []).extend([rung.part] if rung.part else [])
    return [f"{environment}:{','.join(parts)}" if parts else environment for environment, parts in found.items()]


def rungs_of(word: str) -> list[Rung]:
    """The rungs that an argument of ``tools/test`` stands for; none for an environment that is not of ours.

    :raises Mistake: if the environment has no such part.
    """
    environment, colon, parts = word.partition(":")
    known = [rung for rung in (*EACH_RUN, *IN_TURNS, *BY_NAME) if rung.environment == environment]
    if not colon:
        return known
    by_part = {rung.part: rung for rung in known if rung.part}
    try:
        return [by_part[part] for part in parts.split(",")]
    except KeyError as error:
        there = ", ".join(by_part) or "none"
        raise Mistake(f"there is no part {error} of {environment}; there are: {there}") from None


def arguments(word: str) -> list[str]:
    """What pytest is given for an argument of ``tools/test``; nothing where it is a whole environment.

    :raises Mistake: if the environment has no such part.
    """
    return list(dict.fromkeys(one for rung in rungs_of(word) for one in rung.arguments)) if ":" in word else []


def uses_one_cpu(word: str) -> bool:
    """Whether the rungs that an argument of ``tools/test`` stands for run beside others; see :class:`Rung`.

    :raises Mistake: if the environment has no such part.
    """
    rungs = rungs_of(word)
    return bool(rungs) and all(rung.uses_one_cpu for rung in rungs)


def git(*command: str, checkout: Path = CHECKOUT) -> str:
    """What git says.

    :raises Mistake: if it fails, or is not there.
    """
    try:
        done = subprocess.run(["git", "-C", str(checkout), *command], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Mistake(f"git can't be run: {error}") from error
    if done.returncode:
        raise Mistake(f"git {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def at_commit(checkout: Path = CHECKOUT) -> str:
    """The commit that is tested here; empty if the tree has changes over it, or is no clone."""
    with suppress(Mistake):
        if not git("status", "--porcelain", checkout=checkout):
            return git("rev-parse", "HEAD", checkout=checkout)
    return ""


def note(word: str, commit: str, verdict: str, seconds: int, checkout: Path = CHECKOUT) -> None:
    """Write down what ``tools/test`` has run.

    :param word: its argument.
    :param commit: what :func:`at_commit` said before; nothing is written if it no longer does.
    :param verdict: ``passed`` or another.
    """
    if not commit or commit != at_commit(checkout):
        return
    line = {
        "rungs": [str(rung) for rung in rungs_of(word)] or [word],
        "commit": commit,
        "passed": verdict == "passed",
        "on": time.strftime("%Y-%m-%d", time.gmtime()),
        "seconds": seconds,
    }
    (checkout / LOG).parent.mkdir(exist_ok=True)
    with (checkout / LOG).open("a", encoding="ascii") as log:
        log.write(f"{json.dumps(line)}\n")


Row = tuple[str, str, str, str]
"""What the page says of a rung: the commit, its number, the day, and the seconds of all rungs that ran together."""


def recorded(checkout: Path = CHECKOUT) -> dict[str, Row]:
    """What the page says, by the rung's name."""
    with (checkout / PAGE).open(encoding="ascii", newline="") as page:
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in list(csv.reader(page))[1:] if row[1]}


def passed(checkout: Path = CHECKOUT) -> dict[str, int]:
    """The number of the commit at which a rung passed last, according to the page, by the rung's name."""
    return {rung: int(row[1]) for rung, row in recorded(checkout).items()}


def record(logs: Iterable[Path], of_ci: Iterable[str] = (), checkout: Path = CHECKOUT) -> list[str]:
    """Have the page say what passed, where that is later than what it says now.

    What the page says of commits that are not behind this one is dropped: they were replaced before they landed.

    :param logs: that ``tools/test`` wrote.
    :param of_ci: commits at which CI passed. Each says itself what CI ran there.
    :returns: the rungs that the page says something new of.
    :raises Mistake: if a log can't be read, or a commit is not behind this one.
    """
    before = recorded(checkout)
    now = {rung: row for rung, row in before.items() if _is_behind(row[0], checkout)}
    for line in [*_lines(logs), *(_line_of_ci(commit, checkout) for commit in of_ci)]:
        if not line["passed"]:
            continue
        number = _number_behind(line["commit"], checkout)
        for rung in line["rungs"]:
            if rung not in now or number >= int(now[rung][1]):
                now[rung] = (line["commit"][:10], str(number), line["on"], str(line["seconds"]))
    order = [str(rung) for rung in (*EACH_RUN, *IN_TURNS, *BY_NAME)]
    with (checkout / PAGE).open("w", encoding="ascii", newline="") as page:
        writer = csv.writer(page, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows((rung, *now.get(rung, ("", "", "", ""))) for rung in order)
    return [rung for rung in order if now.get(rung) != before.get(rung)]


def _line_of_ci(commit: str, checkout: Path) -> dict[str, Any]:
    """What a log of CI would say of a commit at which it passed."""
    name, day = git("show", "--no-patch", "--format=%H %cs", commit, checkout=checkout).split()
    with tempfile.TemporaryDirectory() as directory:
        tree = f"{directory}/tree"
        git("worktree", "add", "--quiet", "--detach", tree, name, checkout=checkout)
        try:
            command = [sys.executable, "-B", "tools/rotation.py", "ci"]
            said = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        finally:
            git("worktree", "remove", "--force", tree, checkout=checkout)
    if said.returncode:
        raise Mistake(f"what CI ran at {name[:10]} can't be told: {said.stderr.strip()}")
    rungs = [
        f"{environment}:{part}" if part else environment
        for environment, _, parts in (word.partition(":") for word in said.stdout.split())
        for part in parts.split(",")
    ]
    return {"rungs": rungs, "commit": name, "passed": True, "on": day, "seconds": ""}


def _number_behind(commit: str, checkout: Path) -> int:
    """The number of a commit that the source tree's own one has behind it."""
    if not _is_behind(commit, checkout):
        raise Mistake(f"{commit[:10]} is not behind this commit: what passed there says nothing of this tree")
    return int(git("rev-list", "--count", commit, checkout=checkout))


def _is_behind(commit: str, checkout: Path) -> bool:
    """Whether the source tree's commit is that one, or came after it."""
    try:
        git("merge-base", "--is-ancestor", commit, "HEAD", checkout=checkout)
    except Mistake:
        return False
    return True


def _lines(logs: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for log in logs:
        try:
            text = log.read_text(encoding="ascii")
        except OSError as error:
            raise Mistake(f"{log} can't be read ({error.strerror}): tools/test writes it") from error
        yield from (json.loads(line) for line in text.splitlines())


def state(checkout: Path = CHECKOUT) -> Iterator[str]:
    """Whose turn it is, and what the page says, as lines for people."""
    rows = recorded(checkout)
    now = in_turn(passed(checkout))
    here: int | None = None
    with suppress(Mistake):
        # A shallow clone does not know the commit's number.
        if git("rev-parse", "--is-shallow-repository", checkout=checkout) == "false":
            here = int(git("rev-list", "--count", "HEAD", checkout=checkout))
    yield (
        f"Each run of CI has some rungs, and {ROOM:.0f} minutes for others: those that passed longest ago are marked as"
        " next."
    )

    def line(when: str, rung: Rung) -> str:
        commit, at, day, _ = rows.get(str(rung), ("", "", "", ""))
        behind = f", {here - int(at)} commits ago" if commit and here is not None else ""
        told = f"passed at {commit}, number {at}{behind}, on {day}" if commit else "not recorded yet"
        return f"  {when:8} {rung!s:30} {told}"

    yield from (line("each run", rung) for rung in EACH_RUN)
    yield from (line("next" if rung in now else "in turns", rung) for rung in IN_TURNS)
    yield from (line("by name", rung) for rung in BY_NAME)


def main() -> int:
    """Do what ``tools/test`` asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.rotation", description="What tools/test asks.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ci", help="print what CI runs at this commit, as arguments of tools/test")
    commands.add_parser("all", help="print all that there is, as arguments of tools/test")
    one = commands.add_parser("arguments", help="print what pytest is given for an argument of tools/test")
    one.add_argument("word")
    one = commands.add_parser("record", help="have the page say what passed")
    one.add_argument("log", nargs="*", type=Path)
    one.add_argument("--ci", metavar="COMMIT", action="append", default=[], help="CI passed at this commit")
    commands.add_parser("state", help="print whose turn it is, and which rung passed last at which commit")
    asked = parser.parse_args()
    try:
        print(*_answer(asked), sep="\n")
    except Mistake as mistake:
        print(f"tools/test: {mistake}", file=sys.stderr)
        return 1
    return 0


def _answer(asked: argparse.Namespace) -> Iterable[str]:
    match asked.command:
        case "ci":
            return words((*EACH_RUN, *in_turn(passed())))
        case "all":
            return dict.fromkeys(rung.environment for rung in (*EACH_RUN, *IN_TURNS, *BY_NAME))
        case "arguments":
            return arguments(asked.word)
        case "record":
            logs = asked.log or ([] if asked.ci else [CHECKOUT / LOG])
            return [f"{PAGE}: {rung} is new" for rung in record(logs, asked.ci)] or [f"{PAGE}: left as it is"]
        case _:
            return state()


if __name__ == "__main__":
    sys.exit(main())
