# SPDX-License-Identifier: Apache-2.0
"""Fuzz all targets, or some, and print what came of each.

python -m tests.fuzz [--minutes MINUTES] [TARGET...]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz import run
from tests.fuzz.run import Outcome
from tests.fuzz.table import BY_NAME, CONTROL, TABLE, Target

MINUTES = float(os.environ.get("VMQOS_FUZZ_MINUTES", "2"))
"""How long all of it takes, unless the command line says something else: the slot that CI has for it."""

CONTROL_SECONDS = (5.0, 20.0, 120.0)
"""Seconds in which the planted defect is to be found, at first and on busy machines, where the engine's start alone may
take as long; an engine that works takes one or two."""


def main() -> int:
    """The exit status is 1 where anything was found, or where the engine does not work."""
    options = _options()
    targets = [BY_NAME[name] for name in options.targets] or list(TABLE)
    guided = run.is_guided() and not options.unguided
    print(f"engine: {'atheris, guided by coverage' if guided else 'hypothesis, which nothing guides'}", flush=True)
    if not guided and not options.unguided:
        print("atheris is not installed: no coverage guides the search (pip install atheris)", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vmqos-fuzz-") as folder:
        for long in CONTROL_SECONDS:
            place = Path(folder) / f"control-{long:.0f}"
            control = run.fuzz(CONTROL, long, folder=place, guided=guided)
            if any("ZeroDivisionError" in finding for finding in control.findings):
                break
        else:
            print(f"the engine does not find the planted defect: {control}", file=sys.stderr)
            print((place / "log").read_text(errors="replace")[-2000:], file=sys.stderr)
            return 1
        left = max(0.0, 60 * options.minutes - (time.monotonic() - begun))
        seconds = left * options.jobs / len(targets)

        def fuzz(target: Target) -> Outcome:
            return run.fuzz(target, seconds, folder=Path(folder) / target.name, guided=guided, grown=options.grown)

        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(fuzz, targets))
    print(table(outcomes, guided))
    print(f"{options.jobs} at a time, {seconds:.0f} s each, {time.monotonic() - begun:.0f} s in all")
    for outcome in outcomes:
        for finding in outcome.findings:
            print(f"{outcome.target.name}: {finding}")
    if any(outcome.findings for outcome in outcomes):
        print(
            "the inputs are in tests/fuzz/findings: mend the parser, and commit them, so that the unit tests try them"
        )
        return 1
    return 0


def table(outcomes: Sequence[Outcome], guided: bool) -> str:
    """What came of each target, for people."""
    reached = "edges" if guided else "lines"
    rows = [("target", "text", "executions", "taken", reached, "corpus", "findings")]
    found = sum(len(one.findings) for one in outcomes)
    for one in outcomes:
        share = f"{100 * one.taken / max(1, one.tried):.0f} %"
        figures = (_spaced(one.tried), share, str(one.reached), str(one.corpus), str(len(one.findings)))
        rows.append((one.target.name, one.target.text, *figures))
    rows.append(("", "all", _spaced(sum(one.tried for one in outcomes)), "", "", "", str(found)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _spaced(number: int) -> str:
    """A number whose thousands are set apart."""
    return f"{number:,}".replace(",", " ")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers of outside text.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="those of tests/fuzz/table.py; all by default")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long in all (default: %(default)g)")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="targets at a time")
    parser.add_argument("--unguided", action="store_true", help="hypothesis, although atheris is installed")
    parser.add_argument("--grown", type=Path, metavar="FOLDER", help="keep the corpus that grows, and begin with it")
    options = parser.parse_args()
    unknown = [name for name in options.targets if name not in BY_NAME]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
