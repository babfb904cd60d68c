# SPDX-License-Identifier: Apache-2.0
"""The documentation's page about the suite, made from the counts of a run.

``python -m tests.conformance.table`` writes it from what the last whole run counted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance import differences
from tests.conformance.differences import Difference
from tests.conformance.items import ONLY, case_and_place
from tests.conformance.machines import KERNEL, KERNEL_OF, PAIRS, PROFILE_OF, SIMULATED, TARGETS
from tests.counted import page as counted
from tests.counted.rst import joined, table, titled

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

``mpam`` (Arm's), ``clearwater-forest`` (packages that count energy, cycles and stalls) and
``sapphire-rapids-snc2`` (sub-NUMA nodes) have no guest: QEMU emulates no such processor, so one
number is all there is.  They were written after the kernel's source, and no kernel has confirmed
them.  :doc:`features` tells of the machines' features.
"""


class Place(NamedTuple):
    """What a count is of."""

    section: str
    machine: str
    kernel: str
    target: str


def section_of(module: str) -> str:
    """What a module of cases is about, in words.

    :param module: its path.
    """
    return Path(module).stem.removeprefix("test_").replace("_", " ")


def places(report: pytest.TestReport) -> Iterator[Place]:
    """What a case that passed counts for; nothing for a test that is no case."""
    place = case_and_place(report.nodeid)
    if place is not None:
        case, where = place
        yield Place(section_of(case.partition("::")[0]), where.pair.machine, where.pair.kernel, where.target)


def text(counts: counted.Passed) -> str:
    """The page."""
    passed = {Place(*place): count for place, count in counts.items()}
    parts = [_HEAD.format(newest=KERNEL_OF["newest"].version)]
    parts.append(titled("All cases", table(_overview(passed))))
    parts.append(titled("What the sections are about", table(_sections())))
    for kernel in KERNEL_OF:
        parts.append(titled(f"Sections with {_name(kernel)}", table(_counts(passed, kernel))))
    told = "The cases know of these differences between the kernels, and of no other.\n\n"
    parts.append(titled("In what the kernels differ", told + table(_differences())))
    return joined(parts)


PAGE = counted.Page(
    path=Path("doc/source/reference/conformance.rst"),
    counts=Path("doc/build/conformance.json"),
    suite=Path("tests/conformance"),
    places=places,
    text=text,
    command="python -m tests.conformance.table",
    narrowing=(ONLY,),
)


def _name(kernel: str) -> str:
    return f"Linux {kernel}" if kernel[0].isdigit() else f"the {kernel} Linux"


def _modules() -> list[Path]:
    return sorted(_CASES.glob("test_*.py"))


def _overview(passed: Mapping[Place, int]) -> Iterator[list[str]]:
    yield ["Machine", *map(_name, KERNEL_OF)]
    for machine in PROFILE_OF:
        yield [machine, *(_cell(passed, [machine], [kernel]) for kernel in KERNEL_OF)]
    yield ["**all**", *(_cell(passed, PROFILE_OF, [kernel]) for kernel in KERNEL_OF)]


def _sections() -> Iterator[list[str]]:
    yield ["Section", "What its cases are about"]
    for module in _modules():
        told = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        yield [section_of(str(module)), " ".join(told.partition("\n\n")[0].split())]


def _counts(passed: Mapping[Place, int], kernel: str) -> Iterator[list[str]]:
    machines = [pair.machine for pair in (*PAIRS, *SIMULATED) if pair.kernel == kernel]
    yield ["Section", *machines]
    for section in (section_of(str(module)) for module in _modules()):
        yield [section, *(_cell(passed, [machine], [kernel], [section]) for machine in machines)]


def _cell(
    passed: Mapping[Place, int], machines: Iterable[str], kernels: Sequence[str], sections: Sequence[str] = ()
) -> str:
    """The counts on both targets.

    :param sections: all of them if none is named.
    """
    machines = set(machines)
    counts = dict.fromkeys(TARGETS, 0)
    for place, count in passed.items():
        if place.machine in machines and place.kernel in kernels and (not sections or place.section in sections):
            counts[place.target] += count
    if machines <= {pair.machine for pair in SIMULATED}:
        del counts[KERNEL]
    return " + ".join(map(str, counts.values())) if any(counts.values()) else ""


def _differences() -> Iterator[list[str]]:
    yield ["Newer kernels", "Since", "Source"]
    for one in vars(differences).values():
        if isinstance(one, Difference):
            known = one.since != differences.UNKNOWN
            since = ".".join(map(str, one.since)) if known else "after 6.12"
            yield [one.what, since, one.reference]


if __name__ == "__main__":
    counted.write_anew(PAGE)
