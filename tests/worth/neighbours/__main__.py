# SPDX-License-Identifier: Apache-2.0
"""Judge insight by generated mixes, natively: ``python -m tests.worth.neighbours --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.worth.neighbours import campaign, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.worth.neighbours",
        description=__doc__,
        epilog="exit status: 0 if all that has to be shown is shown, 1 if not, 3 if the time was too short",
    )
    parser.add_argument("--first", type=int, default=campaign.TEST_SEEDS, help="the first seed (%(default)s)")
    parser.add_argument("--planted", type=int, default=campaign.PLANTED, help="mixes with a culprit (%(default)s)")
    parser.add_argument("--quiet", type=int, default=campaign.QUIET, help="mixes without (%(default)s)")
    parser.add_argument("--seconds", type=float, help="stop after so long; another run goes on")
    parser.add_argument("--keep", type=Path, default=campaign.KEPT, help="what came of mixes is kept in this file")
    parser.add_argument("--verbose", action="store_true", help="tell of each mix what was missed, and what is false")
    options = parser.parse_args(arguments)
    wanted = {"planted": options.planted, "quiet": options.quiet}
    found = campaign.kept(options.keep)
    whole = campaign.play(found, wanted, options.first, options.seconds, options.keep)
    found = campaign.chosen(found, wanted, options.first)
    if options.verbose:
        print(*table.details(found), sep="\n")
    print(*table.lines(found), sep="\n")
    if not whole:
        print("the time was too short for all mixes")
        return 3
    return 0 if table.holds(found) else 1


if __name__ == "__main__":
    sys.exit(main())
