# SPDX-License-Identifier: Apache-2.0
"""Make the experiments, and the report of them: ``python -m tests.worth --help``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kernel.lab import guest, machines
from tests.kernel.lab.build import ready
from tests.kernel.lab.cache import Cache
from tests.kernel.lab.errors import GuestDied, LabError
from tests.kernel.lab.job import CHECKOUT, Job
from tests.worth import page, sections
from tests.worth.display import Display
from tests.worth.experiments.size_programs import joined
from tests.worth.neighbours import beside
from tests.worth.size.programs import linux
from tests.worth.size.programs.loads import PROGRAMS

GUESTS = (
    ("milan-shared", ("four_cases", "compression", "capped_batch", "halves", "jitter", "mixes")),
    ("milan-shared", ("bench",)),
    ("broadwell", ("pseudo_locked",)),
    ("milan-shared", ("guest_mixes",)),
    ("milan-shared", ("size_programs",)),
)
"""Machines, and which experiments are made in one guest: a compute node takes as long to start as two of them."""
NATIVE = ("batch_channel", "memory_limit", "neighbours", "size", "size_passive", "leaving")
"""Experiments that need no guest, and no rights."""
COMPLETED: Mapping[str, Callable[[Any], Any]] = {"guest_mixes": beside.complete}
"""What is made outside of what some experiments found in a guest."""
KERNEL = "6.12"
NO_TICKS = "nohz_full=1-3"
"""For the kernel's command line: no timer's interrupt where one VM has a CPU for itself. 250 a second are nothing to a
processor, but much to an emulated one: they fill a small cache with the kernel's lines, the slower it is the more."""
TIMEOUT = 3600.0
POLL = 0.5
PAGE = CHECKOUT / "doc/source/operator/worth.rst"
PLOTS = CHECKOUT / "doc/source/_static/worth"
RESULTS = CHECKOUT / "tests/worth/results.json"
EPILOG = """\
Most experiments run in guests (root; python -m tests.kernel build makes what guests need). What each finds is kept in
tests/worth/results.json, and the page and its plots are made of that. Where one fails, the others are made all
the same, and the page has what was found of it before.

exit status: 125 if an experiment failed; 1 if ways of its own do not keep a noisy neighbour away; what else of the
literature does not hold here is a result
"""


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.worth",
        description="What cache allocation is worth: experiments of the literature, in guests with modelled caches.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=(*sections.ALL, []), help=f"only these: {', '.join(sections.ALL)}"
    )
    parser.add_argument(
        "--program",
        dest="programs",
        metavar="PROGRAM",
        action="append",
        default=[],
        choices=PROGRAMS,
        help="run size_programs alone, with this program only; may be given several times. What was found of others "
        f"stays. One of {', '.join(PROGRAMS)}",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="judge what was counted of guest_mixes by the law as it is now, without a guest",
    )
    parser.add_argument("--render", action="store_true", help="make page and plots of what was found before")
    chosen = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if chosen.programs and (chosen.render or chosen.names not in ([], ["size_programs"])):
        parser.error("--program is of size_programs alone")
    if chosen.again and (chosen.render or chosen.programs or chosen.names):
        parser.error("--again stands alone")
    if chosen.again:
        return _judge_again(results)
    names = [] if chosen.render else ["size_programs"] if chosen.programs else chosen.names or list(sections.ALL)
    try:
        failed = _measure_all(names, results, chosen.programs)
    except LabError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 125
    holds = _render(results)
    if failed:
        print(f"{parser.prog}: failed: {', '.join(failed)}", file=sys.stderr)
        return 125
    return 0 if holds else 1


def _judge_again(results: dict[str, Any]) -> int:
    """Put what the law as it is now says of the guests' mixes into the report; return the exit status."""
    found = beside.again()
    if not found:
        print("nothing is kept that was counted of these mixes: run guest_mixes", file=sys.stderr)
        return 125
    results["guest_mixes"] = beside.complete(found)
    _keep(results)
    return 0 if _render(results) else 1


def _measure_all(names: Collection[str], results: dict[str, Any], programs: Sequence[str]) -> list[str]:
    """Make these experiments, and keep what each found.

    :param programs: which of size_programs are run; all if none is named.
    :returns: those that failed.
    """
    guests = [(machine, chosen) for machine, of in GUESTS if (chosen := [name for name in of if name in names])]
    display = Display(len(guests))
    failed = []
    for machine, chosen in guests:
        with display.guest(machine):
            found = _measure(machine, chosen, programs, display)
        failed += lacking(chosen, programs or list(PROGRAMS), found)
        if "size_programs" in found:
            found["size_programs"] = joined(results.get("size_programs"), found["size_programs"])
        results.update({name: COMPLETED[name](of) if name in COMPLETED else of for name, of in found.items()})
        _keep(results)
    for name in NATIVE:
        if name in names:
            results[name] = importlib.import_module(f"tests.worth.experiments.{name}").run()
            _keep(results)
    return failed


def _measure(machine: str, names: Sequence[str], programs: Sequence[str], display: Display) -> dict[str, Any]:
    """Make experiments in a guest; what went wrong is printed.

    :returns: what those found that did not fail.
    """
    path = Path()
    try:
        with guest.kept_of_the_dead() as path:
            # What earlier runs left, for those that go on with it.
            left = {str(beside.KEPT.relative_to(CHECKOUT)): beside.KEPT.read_bytes()} if beside.KEPT.exists() else {}
            if "size_programs" in names:
                kernel = ready(Cache())[f"linux-{KERNEL}"].path / "vmlinuz"
                left[str(linux.KERNEL.relative_to(CHECKOUT))] = kernel.read_bytes()
            job = Job(f"exec python3 -m tests.worth.inside {words(names, programs)}", left)
            with guest.Guest(machines.machine(machine), KERNEL, job, path, append=NO_TICKS) as running:
                deadline = time.monotonic() + TIMEOUT
                while running.running:
                    if time.monotonic() > deadline:
                        raise GuestDied(running.obituary(f"did not end within {TIMEOUT:.0f} s and is killed"))
                    display.step(_steps(path))
                    time.sleep(POLL)
                result = running.wait(0)
            if result.status:
                print(result.stderr, file=sys.stderr)
            return found_in(path)
    except GuestDied as error:
        # Its directory is kept.
        print(error, file=sys.stderr)
        return found_in(path)


def words(names: Sequence[str], programs: Sequence[str]) -> str:
    """The arguments of :mod:`tests.worth.inside`.

    :param programs: which of size_programs are run; all if none is named.
    """
    only = f":{','.join(programs)}" if programs else ""
    return " ".join(f"{name}{only}" if name == "size_programs" else name for name in names)


def lacking(names: Sequence[str], programs: Sequence[str], found: Mapping[str, Any]) -> list[str]:
    """What was to be found in a guest and was not, or not to its end.

    :param programs: which of size_programs were run.
    """
    sized = found["size_programs"]["programs"] if "size_programs" in found else {}
    cut = [name for name in programs if sized and (name not in sized or sized[name]["cut"])]
    return [*(name for name in names if name not in found), *(f"size_programs --program {name}" for name in cut)]


def _steps(path: Path) -> list[str]:
    """What the experiments in a guest said that they are at."""
    return [line for line in _lines(path) if not line.startswith("{")]


def found_in(path: Path) -> dict[str, Any]:
    """What the experiments in a guest have found so far."""
    found: dict[str, Any] = {}
    for line in _lines(path):
        if line.startswith("{"):
            try:
                found |= json.loads(line)
            except ValueError as error:
                print(f"the guest printed a line of {len(line)} characters that is no JSON: {error}", file=sys.stderr)
    return found


def _lines(path: Path) -> list[str]:
    """Whole lines of a guest's output."""
    output = path / "stdout"
    return output.read_text(errors="replace").split("\n")[:-1] if output.exists() else []


def _keep(results: dict[str, Any]) -> None:
    ordered = {name: results[name] for name in sections.ALL if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")


def _render(results: dict[str, Any]) -> bool:
    """Make page and plots.

    :returns: whether the core holds.
    """
    # Imported here: it is of the extra "worth" alone.
    from tests.worth import plots

    found = {name: make(results[name]) for name, make in sections.ALL.items() if name in results}
    PLOTS.mkdir(parents=True, exist_ok=True)
    for path in PLOTS.iterdir():
        path.unlink()
    for section in found.values():
        for plot in section.plots:
            plots.draw(plot, PLOTS / f"{plot.name}.svg")
    PAGE.write_text(page.build(results))
    owner = CHECKOUT.stat()
    for path in (RESULTS, PAGE, PLOTS, *PLOTS.iterdir()):
        # Root's work in a user's source tree.
        os.chown(path, owner.st_uid, owner.st_gid)
    for section in found.values():
        for claim in section.claims:
            print(f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {section.title}: {claim.text}")
    print(f"the report is in {PAGE.relative_to(CHECKOUT)}")
    return all(claim.holds for name in found if name == "four_cases" for claim in found[name].claims)


if __name__ == "__main__":
    sys.exit(main())
