# SPDX-License-Identifier: Apache-2.0
"""Judge insight by generated mixes, natively: ``python -m tests.worth.neighbours --help``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.worth.neighbours import mixes, table, truth
from tests.worth.neighbours.judge import SIGHTS, judge
from tests.worth.neighbours.machine import run

PLANTED, QUIET = 200, 100
TEST_SEEDS = 100_000
"""The first seed of those that nobody tunes the laws to; these have the seeds from 1 on."""

Found = dict[str, dict[str, Any]]
"""What came of each mix, by its kind and seed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.worth.neighbours", description=__doc__)
    parser.add_argument("--first", type=int, default=TEST_SEEDS, help="the first seed (default: %(default)s)")
    parser.add_argument("--planted", type=int, default=PLANTED, help="mixes with a culprit who harms (%(default)s)")
    parser.add_argument("--quiet", type=int, default=QUIET, help="mixes in which no VM harms another (%(default)s)")
    parser.add_argument("--seconds", type=float, help="stop after so long; --keep lets another run go on")
    parser.add_argument("--keep", type=Path, help="a file: what came of each mix is kept there, and not made again")
    parser.add_argument("--verbose", action="store_true", help="tell of each mix what was missed, and what is false")
    options = parser.parse_args(arguments)
    found: Found = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    until = time.monotonic() + (options.seconds or float("inf"))
    whole = True
    for kind, wanted in (("planted", options.planted), ("quiet", options.quiet)):
        whole &= play(found, kind, wanted, options.first, until)
        if options.keep:
            options.keep.write_text(json.dumps(found))
    if options.verbose:
        print(*table.details(found), sep="\n")
    print(*table.lines(found), sep="\n")
    if not whole:
        print("not all mixes were made in this time")
    return 0 if whole and table.holds(found) else 1


def play(found: Found, kind: str, wanted: int, first: int, until: float) -> bool:
    """Draw mixes of a kind until enough of them are what they should be.

    :returns: whether there was time for that.
    """
    seed = first
    while sum(key.startswith(kind) and one["counts"] for key, one in found.items()) < wanted:
        if time.monotonic() > until:
            return False
        key = f"{kind} {seed}"
        if key not in found:
            found[key] = outcome(kind, seed)
            done = sum(one.startswith(kind) for one in found)
            print(f"{kind}: {done} drawn, {wanted} wanted", end="\r" if sys.stdout.isatty() else "\n", flush=True)
        seed += 1
    return True


def outcome(kind: str, seed: int) -> dict[str, Any]:
    """One mix: whether it counts as what it was drawn for, and what insight said of it."""
    if kind == "quiet":
        mix = mixes.quiet(seed)
        counts, harm = truth.is_quiet(mix), {}
    else:
        mix = mixes.planted(seed)
        harm = truth.harm_done(mix, 30)
        counts = bool(harm)
    whole = run(mix)
    said = {name: judge(mix, whole, harm, sight) for name, sight in SIGHTS.items()}
    return {
        "kind": kind,
        "vms": len(mix.vms),
        "meant": mix.planted.meant if mix.planted is not None else "",
        "onset": mix.planted.onset if mix.planted is not None else 0,
        "counts": counts,
        "harm": {str(vm): [round(one.slower, 2), sorted(one.causes)] for vm, one in harm.items()},
        "said": {
            name: {"named": one.named, "accusations": [asdict(each) for each in one.accusations]}
            for name, one in said.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
