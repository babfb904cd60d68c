# SPDX-License-Identifier: Apache-2.0
"""The documentation's page about the suite, made from the counts of a run.

``python -m tests.conformance.table`` writes it from what the last whole run counted.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conformance import differences
from tests.conformance.differences import Difference
from tests.conformance.machines import KERNEL_OF, PROFILE_OF, TARGETS

CHECKOUT = Path(__file__).parents[2]
PAGE = Path("doc/source/reference/conformance.rst")
COUNTED = Path("doc/build/conformance.json")
"""Where a run leaves its counts."""

_CASES = Path(__file__).parent / "cases"
_HEAD = """\
.. This page is made by the conformance suite: python -m tests.conformance.table

Conformance
===========

What resctrl answers is written down as test cases, in ``tests/conformance``.  Each case is
tried on every machine that has what it needs, with either kernel, twice: on the simulator
and on the kernel itself, in a guest (:doc:`/contributor/kernel`).  What both answered to
every operation is compared as well.  The page is made from a whole run in which nothing
failed.

In the tables, ``13 + 12`` says that 13 cases passed on the simulator and 12 on the kernel;
a case that asks about a cache counts once for each level whose ways can be allocated.  An
empty cell says that no case was tried: the machine has nothing of the kind.  *newest* is
the Linux of Debian testing; the simulator takes it for Linux {newest}.
"""


class Place(NamedTuple):
    """What a count is of."""

    section: str
    machine: str
    kernel: str
    target: str


Passed = Mapping[Place, int]
"""How many cases passed."""


def section_of(module: str) -> str:
    """What a module of cases is about, in words.

    :param module: its path.
    """
    return Path(module).stem.removeprefix("test_").replace("_", " ")


def page(passed: Passed) -> str:
    """The page's text."""
    parts = [_HEAD.format(newest=KERNEL_OF["newest"].version)]
    parts.append(_titled("All cases", _table(_overview(passed))))
    parts.append(_titled("What the sections are about", _table(_sections())))
    for kernel in KERNEL_OF:
        parts.append(_titled(f"Sections with {_name(kernel)}", _table(_counts(passed, kernel))))
    told = "The cases know of these differences between the kernels, and of no other.\n\n"
    parts.append(_titled("In what the kernels differ", told + _table(_differences())))
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


def is_out_of_date(passed: Passed, checkout: Path = CHECKOUT) -> bool:
    """Whether the page of a source tree is not what :func:`page` says."""
    path = checkout / PAGE
    return not path.exists() or path.read_text(encoding="utf-8") != page(passed)


def _name(kernel: str) -> str:
    return f"Linux {kernel}" if kernel[0].isdigit() else f"the {kernel} Linux"


def _modules() -> list[Path]:
    return sorted(_CASES.glob("test_*.py"))


def _overview(passed: Passed) -> Iterator[list[str]]:
    yield ["Machine", *map(_name, KERNEL_OF)]
    for machine in PROFILE_OF:
        yield [machine, *(_cell(passed, [machine], [kernel]) for kernel in KERNEL_OF)]
    yield ["**all**", *(_cell(passed, PROFILE_OF, [kernel]) for kernel in KERNEL_OF)]


def _sections() -> Iterator[list[str]]:
    yield ["Section", "What its cases are about"]
    for module in _modules():
        told = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        yield [section_of(str(module)), " ".join(told.partition("\n\n")[0].split())]


def _counts(passed: Passed, kernel: str) -> Iterator[list[str]]:
    yield ["Section", *PROFILE_OF]
    for section in (section_of(str(module)) for module in _modules()):
        yield [section, *(_cell(passed, [machine], [kernel], [section]) for machine in PROFILE_OF)]


def _cell(passed: Passed, machines: Iterable[str], kernels: Sequence[str], sections: Sequence[str] = ()) -> str:
    """The counts on both targets.

    :param sections: all of them if none is named.
    """
    machines = set(machines)
    counts = dict.fromkeys(TARGETS, 0)
    for place, count in passed.items():
        if place.machine in machines and place.kernel in kernels and (not sections or place.section in sections):
            counts[place.target] += count
    return " + ".join(map(str, counts.values())) if any(counts.values()) else ""


def _differences() -> Iterator[list[str]]:
    yield ["Newer kernels", "Since", "Source"]
    for one in vars(differences).values():
        if isinstance(one, Difference):
            known = one.since != differences.UNKNOWN
            since = ".".join(map(str, one.since)) if known else "after 6.12"
            yield [one.what, since, one.reference]


def _titled(title: str, text: str) -> str:
    return f"{title}\n{'-' * len(title)}\n\n{text}"


def _table(rows: Iterator[list[str]]) -> str:
    """A list table: it needs no alignment of columns."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        for number, cell in enumerate(row):
            lines.append(f"   {'*' if number == 0 else ' '} - {cell}".rstrip())
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    counted = CHECKOUT / COUNTED
    if not counted.exists():
        sys.exit(f"{counted} is not there: run the suite first, all of it")
    rows = json.loads(counted.read_text(encoding="ascii"))
    passed = {Place(*names): count for *names, count in rows}
    (CHECKOUT / PAGE).write_text(page(passed), encoding="utf-8")
    counts = ", ".join(
        f"{sum(passed[one] for one in passed if one.target == target)} on the {target}" for target in TARGETS
    )
    print(f"{PAGE}: cases passed: {counts}")


if __name__ == "__main__":
    main()
