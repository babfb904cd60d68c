# SPDX-License-Identifier: Apache-2.0
"""A page that is made from counts: what it counts, and where both are kept."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

Place = tuple[str, ...]
"""What is counted by itself."""

Passed = Mapping[Place, int]
"""How many tests passed, of each place that any passed of."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page or a part of one.

    :ivar path: the page, in the source tree.
    :ivar counts: where a run leaves what it counted, in the source tree.
    :ivar suite: the directory of the tests that are counted: a run that is asked for less of it says nothing.
    :ivar places: what a test that passed counts for.
    :ivar text: the page for some counts.
    :ivar command: what an operator types to have it written anew.
    :ivar narrowing: environment variables that leave tests of the suite out.
    """

    path: Path
    counts: Path
    suite: Path
    places: Callable[[pytest.TestReport], Iterable[Place]]
    text: Callable[[Passed], str]
    command: str
    narrowing: tuple[str, ...] = ()

    def is_out_of_date(self, passed: Passed, checkout: Path = CHECKOUT) -> bool:
        """Whether the page of a source tree says something else than these counts."""
        path = checkout / self.path
        return not path.exists() or path.read_text(encoding="utf-8") != self.text(passed)

    def write(self, passed: Passed, checkout: Path = CHECKOUT) -> None:
        """Have the page say what was counted."""
        (checkout / self.path).write_text(self.text(passed), encoding="utf-8")

    def keep(self, passed: Passed, checkout: Path = CHECKOUT) -> None:
        """Write the counts down. The run is root's; what it leaves in a user's tree must be the user's."""
        rows = [[*place, passed[place]] for place in sorted(passed)]
        owner, counts = os.stat(checkout), checkout / self.counts
        if not counts.parent.exists():
            counts.parent.mkdir()
            os.chown(counts.parent, owner.st_uid, owner.st_gid)
        counts.write_text(json.dumps(rows, indent=1), encoding="ascii")
        os.chown(counts, owner.st_uid, owner.st_gid)

    def kept(self, checkout: Path = CHECKOUT) -> Passed | None:
        """What the last whole run counted; ``None`` where there was none."""
        counts = checkout / self.counts
        if not counts.exists():
            return None
        return {tuple(place): count for *place, count in json.loads(counts.read_text(encoding="ascii"))}


def write_anew(*pages: Page) -> None:
    """Write those pages of this source tree whose suite was run, and say which."""
    written = 0
    for page in pages:
        passed = page.kept()
        if passed is None:
            print(f"{page.path}: left as it is; {page.suite} was not run here, all of it")
            continue
        page.write(passed)
        written += 1
        print(f"{page.path}: {sum(passed.values())} counted")
    if not written:
        sys.exit("nothing was counted: run the tests first")
