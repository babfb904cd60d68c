# SPDX-License-Identifier: Apache-2.0
"""Drawing mixes until there are enough of each kind, and judging each.

What came of a mix is kept in a file, so that a campaign can be made in parts. It is forgotten as soon as a law, a mix
or the model has changed.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.kernel.lab.job import CHECKOUT
from tests.worth.native import build
from tests.worth.neighbours import law, mixes, truth
from tests.worth.neighbours.judge import SIGHTS, judge
from tests.worth.neighbours.machine import remembered

PLANTED, QUIET = 200, 100
TEST_SEEDS = 100_000
"""The first seed of those that are reported; for tuning there are those from 1 on."""
OTHER_SEEDS = 200_000
"""The first seed of those by which no law is changed: some of those from ``TEST_SEEDS`` on have led to a better one."""
KEPT = CHECKOUT / "build/neighbours.json"

Found = dict[str, dict[str, Any]]
"""What came of each mix, by its kind and seed."""


def whole(first: int = TEST_SEEDS, planted: int = PLANTED, quiet: int = QUIET, keep: Path | None = KEPT) -> Found:
    """What came of a whole campaign, which takes as long as it takes."""
    found = kept(keep)
    play(found, {"planted": planted, "quiet": quiet}, first, None, keep)
    return chosen(found, {"planted": planted, "quiet": quiet}, first)


def play(found: Found, wanted: dict[str, int], first: int, seconds: float | None, keep: Path | None) -> bool:
    """Draw mixes of each kind until enough of them are what they should be.

    :param seconds: stop after so long; ``None``: never.
    :returns: whether there was time for all.
    """
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    # Of the files as they were when they were read: they may change while this runs.
    of = digest() if keep is not None else ""
    for kind, number in wanted.items():
        seed, good = first, 0
        while good < number:
            key = f"{kind} {seed}"
            if key not in found:
                if time.monotonic() > until:
                    return False
                found[key] = outcome(kind, seed)
                if keep is not None:
                    keep.parent.mkdir(exist_ok=True)
                    keep.write_text(json.dumps({"of": of, "found": found}))
            good += found[key]["counts"]
            seed += 1
            print(f"{kind}: {good} of {number}", end="\r" if sys.stdout.isatty() else "\n", flush=True)
    return True


def chosen(found: Found, wanted: dict[str, int], first: int) -> Found:
    """Of all that is kept, the mixes of a campaign: from the first seed on, as many as are wanted of each kind."""
    result: Found = {}
    for kind, number in wanted.items():
        seed, good = first, 0
        while good < number and (key := f"{kind} {seed}") in found:
            result[key] = found[key]
            good += found[key]["counts"]
            seed += 1
    return result


def kept(keep: Path | None) -> Found:
    """What is kept, if it is of these laws."""
    if keep is None or not keep.exists():
        return {}
    read = json.loads(keep.read_text())
    found: Found = read["found"] if read["of"] == digest() else {}
    return found


def digest() -> str:
    """Of all that decides what comes of a mix."""
    return law.digest([*sorted(Path(__file__).parent.glob("*.py")), *law.sources(), *build.sources()])


def outcome(kind: str, seed: int) -> dict[str, Any]:
    """One mix: whether it counts as what it was drawn for, and what insight said of it."""
    mix = mixes.quiet(seed) if kind == "quiet" else mixes.planted(seed)
    runner = remembered(mix)
    harm = {} if mix.planted is None else truth.harm_done(mix, 30, runner)
    said = {name: judge(mix, runner(mix), harm, sight, runner=runner) for name, sight in SIGHTS.items()}
    return {
        "kind": kind,
        "vms": len(mix.vms),
        "meant": mix.planted.meant if mix.planted is not None else "",
        "onset": mix.planted.onset if mix.planted is not None else 0,
        "counts": bool(harm) if mix.planted is not None else truth.is_quiet(mix),
        "harm": {str(vm): [round(one.slower, 2), sorted(one.causes)] for vm, one in harm.items()},
        "said": {
            name: {"named": one.named, "accusations": [asdict(each) for each in one.accusations]}
            for name, one in said.items()
        },
    }
