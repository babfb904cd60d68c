# SPDX-License-Identifier: Apache-2.0
"""``vmqos neighbours``: which VM slows which, and by what."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vmqos.cli import settings
from vmqos.cli.neighbours import ask, view
from vmqos.cli.neighbours.output import Told, Verdicts
from vmqos.cli.show import freshness, vm_view
from vmqos.cli.show.freshness import Freshness
from vmqos.cli.show.safe_text import distinct_names
from vmqos.cli.vm.watched import Watched


@dataclass(frozen=True, slots=True)
class Look:
    """What the agent told, and when."""

    taken_at: float
    told: Told
    freshness: Freshness


class Neighbours(Watched[Look], Verdicts):
    """Say which VMs are slowed by a neighbour, by which one and by what, and what ends it.

    The agent judges by the last minutes of what it counts of each VM: what it holds of the L3 caches, its traffic with
    memory and, where the host has hardware events, its cycles, instructions and cache misses. A VM is accused only
    where another one became slow just as the accused one brought in much more, where this fits the figures, and where
    nothing else explains it. A false accusation is worse than a missed one: what is not said may be so all the same.

    For each pair: the cause (the cache, or the memory's bandwidth), how many times as long the victim's work takes,
    since when, how sure that is, the figures it follows from, and a command that ends it. Then the VMs that are slower
    than they were, or than others of their flavor, without a neighbour who could be named; those that lack cache; and
    those that fill it without gain.

    With a VM, only what concerns it, as the victim or as the culprit, and what the cache is to it.

    Without hardware events less is found, and how much slower a VM is can only be estimated; a line says so.

    With --watch it is said anew every few seconds. In a terminal it stays in its place: q ends it, space looks at once,
    and the arrows scroll. Where the output is no terminal, or is for programs, each answer is printed below the last
    one until Ctrl-C.

    With -f json or yaml the answer is the agent's own object, and -c takes its fields. With -f csv or value there is a
    row for each pair: Slower is a factor, Confidence from 0 to 1, Taken the bytes of cache that the victim lost.

    'vmqos record' writes down what a verdict follows from, and 'vmqos replay' judges it again.

    The exit status is 3 if what is printed is old: the agent answers, and does not look any more. It is 0 whether or
    not a VM is slowed.

    For example::

        vmqos neighbours
        vmqos neighbours web-1
        vmqos neighbours --watch 5
        vmqos neighbours -f value -c Victim -c Culprit -c Cause
        vmqos neighbours -f json -c pairs
    """

    called = "vmqos neighbours"
    again = "say it again"
    parts = ("vms", "counters")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which VM."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "vm",
            metavar="VM",
            nargs="?",
            help="only what concerns this VM: its UUID, a beginning of the UUID that no other VM has, or its name",
        )
        return parser

    def look(self, parsed_args: argparse.Namespace) -> Look:
        """Ask the agent."""
        agent = settings.agent(self.app.options)
        found, vms = ask.verdicts(agent), agent.vms()
        uuid = vm_view.find(vms, parsed_args.vm)["uuid"] if parsed_args.vm else None
        told = Told(view.of_vm(found, uuid) if uuid else found, distinct_names(vms), uuid)
        return Look(time.time(), told, freshness.ask(agent, self.parts))

    def cells(self, look: Look, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """What the agent told, as :class:`vmqos.cli.neighbours.output.Verdicts` prints it."""
        return self.prepare(look.told, parsed_args)

    def has_titles(self, parsed_args: argparse.Namespace) -> bool:
        """Without chosen columns there are sentences."""
        return bool(parsed_args.columns)
