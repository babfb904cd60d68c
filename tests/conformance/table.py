# SPDX-License-Identifier: Apache-2.0
"""The documentation's page about the suite, made from the counts of a run.

``python -m tests.conformance.table`` writes it from what the last whole run counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.conformance import differences
from tests.conformance.differences import Difference
from tests.conformance.machines import KERNEL, KERNEL_OF, PROFILE_OF, SIMULATOR

_CHECKOUT = Path(__file__).parents[2]
PAGE = Path("doc/source/reference/conformance.rst")
COUNTED = _CHECKOUT / "doc" / "build" / "conformance.json"
"""Where a run leaves its counts."""

_HEAD = """\
.. This page is made by the conformance suite: python -m tests.conformance.table

Conformance
===========

What resctrl answers is written down as test cases, in ``tests/conformance``.  Each is tried
on the simulator and on a kernel, on each of these machines; what both answered to every
operation is compared as well.  A cell says how many cases of a section passed on the
simulator and on the kernel in the last run that was written down here; an empty one, that
none was tried.
"""
_DIFFERENCES = """\
In what the kernels differ
--------------------------

The cases know of these differences between the kernels, and of no other.
"""


class Place(NamedTuple):
    """What a count is of."""

    section: str
    machine: str
    kernel: str
    target: str


def page(passed: Mapping[Place, int]) -> str:
    """The page's text."""
    parts = [_HEAD]
    for kernel in KERNEL_OF:
        title = f"Linux {kernel}" if kernel[0].isdigit() else f"The {kernel} Linux in Debian"
        parts.append(f"{title}\n{'-' * len(title)}\n\n{_table(_counts(passed, kernel))}")
    parts.append(f"{_DIFFERENCES}\n{_table(_differences())}")
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


def is_out_of_date(passed: Mapping[Place, int]) -> bool:
    """Whether the page is not what :func:`page` says."""
    path = _CHECKOUT / PAGE
    return not path.exists() or path.read_text(encoding="utf-8") != page(passed)


def _counts(passed: Mapping[Place, int], kernel: str) -> Iterator[list[str]]:
    yield ["Section", *PROFILE_OF]
    sections = sorted({place.section for place in passed})
    for section in sections:
        yield [section, *(_cell(passed, [section], machine, kernel) for machine in PROFILE_OF)]
    yield ["**all**", *(_cell(passed, sections, machine, kernel) for machine in PROFILE_OF)]


def _cell(passed: Mapping[Place, int], sections: list[str], machine: str, kernel: str) -> str:
    on_simulator, on_kernel = (
        sum(passed.get(Place(section, machine, kernel, target), 0) for section in sections)
        for target in (SIMULATOR, KERNEL)
    )
    return f"{on_simulator} + {on_kernel}" if on_simulator or on_kernel else ""


def _differences() -> Iterator[list[str]]:
    yield ["Newer kernels", "Since", "Source"]
    for one in vars(differences).values():
        if isinstance(one, Difference):
            known = one.since != differences.UNKNOWN
            since = ".".join(map(str, one.since)) if known else "after 6.12"
            yield [one.what, since, one.reference]


def _table(rows: Iterator[list[str]]) -> str:
    """A list table: it needs no alignment of columns."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        for number, cell in enumerate(row):
            lines.append(f"   {'*' if number == 0 else ' '} - {cell}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    if not COUNTED.exists():
        sys.exit(f"{COUNTED} is not there: run the suite first, all of it")
    rows = json.loads(COUNTED.read_text(encoding="ascii"))
    passed = {Place(*names): count for *names, count in rows}
    (_CHECKOUT / PAGE).write_text(page(passed), encoding="utf-8")
    print(f"{PAGE}: {sum(passed.values())} cases")


if __name__ == "__main__":
    main()
