# SPDX-License-Identifier: Apache-2.0
"""The report as a page of the operator's guide."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from tests.worth.advice import advice
from tests.worth.rounds import ROUNDS
from tests.worth.section import SAME, Section, Table
from tests.worth.sections import ALL

WIDTH = 112
PLOTS = "../_static/worth"

HEAD = f"""\
.. This page is made by the experiments: python -m tests.worth

What it is worth
================

What ways of its own do for a VM beside a noisy neighbour, in figures: the experiments of the literature, made again
with vmqos.  No machine with cache allocation is needed for that.  A stock kernel runs on an emulated processor
(:doc:`/contributor/kernel`), whose caches are modelled: a way-partitioned L3 that each load and store of the guest
goes through, VMs' too, and that obeys the masks which the kernel writes.  In the guest are libvirtd, VMs under KVM,
and vmqos-agent, which alone changes anything in resctrl; what changes from case to case are flavors.
:doc:`/contributor/worth` tells how it works.  :ref:`What to do <what-to-do>` is at the end.

The order and the direction of the literature's results are what is to be seen again, not their seconds, which
belong to their machines.  So each section has our figures beside those of its source, says what of the source
holds here, and what can't be compared.  One measure serves all of them: results that differ by no more than
{100 * SAME:.0f} % are called the same (*no longer*, *no more*), and only what differs by more is called *better*,
*longer* or *hurt*.  It is as wide as this because it is for the emulation and the host to say how fast VMs on several
CPUs are beside each other: cases of such VMs are made {ROUNDS} times, and the figures are the means; another run's
means still differ by some per cent.  A claim that needs more than the measure says how much.  But for the first
section, each case begins with empty caches, as if the VMs had been started with these flavors.


What the model leaves out
-------------------------

* *Time.*  An emulated processor's seconds say nothing.  Times here are *weighed* from counts: a quarter of a
  nanosecond for an instruction, 20 ns for a line from the L3, 90 ns for one from memory, and nothing overlaps.  So
  a program that only waits for memory suffers more here than on a processor that waits for ten lines at once.
* *Who is how fast.*  Each VM makes its accesses as fast as the emulation lets it, whether they miss or not.  A
  neighbour that waits for memory would read fewer lines meanwhile, and do less damage.  In the sections that need no
  guest, it does wait.
* *Prefetchers*, which help those who stream and disturb the others.
* *Memory's own bandwidth*: lines cost the same however many are fetched.  In the literature part of a neighbour's
  damage is done there, where ways don't help and ``hw:mem_bandwidth_percent`` does.  `A batch VM in one way, with
  memory's bandwidth in it`_ and `A limit of memory bandwidth`_ have a channel to memory, without a guest.
* *Replacement* is LRU.  Real caches guess, and keep some of a stream out by themselves.
* *Size*: 4 MiB, in which VMs' working sets of a few hundred KiB are what some MiB are in a real one."""


def build(results: Mapping[str, Any]) -> str:
    """The whole page.

    :param results: by experiment; the advice is left out where one of them was not made.
    """
    parts = [HEAD, *(rst(make(results[name])) for name, make in ALL.items() if name in results)]
    if set(results) == set(ALL):
        parts.append(advice(results))
    return "\n\n\n".join(parts) + "\n"


def rst(section: Section) -> str:
    """A section, as reStructuredText."""
    claims = "\n".join(
        _paragraph(f"{claim.text}  **{'Holds.' if claim.holds else 'Does not hold here.'}**", "* ")
        for claim in section.claims
    )
    parts = (
        f"{section.title}\n{'-' * len(section.title)}",
        _paragraph(f"*Source:* {section.source}"),
        _paragraph(f"*Here:* {section.text}"),
        *map(_table, section.tables),
        *(f".. image:: {PLOTS}/{plot.name}.svg\n   :alt: {plot.title}" for plot in section.plots),
        claims,
        _paragraph(f"*Limits:* {section.left_out}"),
    )
    return "\n\n".join(parts)


def _paragraph(text: str, bullet: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False
    )


def _table(table: Table) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (table.header, *table.rows):
        lines += [f"   {'* -' if index == 0 else '  -'} {cell}" for index, cell in enumerate(row)]
    return "\n".join(lines)
