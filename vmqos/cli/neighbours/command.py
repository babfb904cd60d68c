# SPDX-License-Identifier: Apache-2.0
"""``vmqos neighbours``: which VM slows which, and by what."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vmqos.cli import exceptions
from vmqos.cli.common import settings
from vmqos.cli.common.option_values import seconds, whole_number
from vmqos.cli.common.output import confirm_first, is_for_machines, terminal_of
from vmqos.cli.neighbours import ask, confirm, confirm_view, view
from vmqos.cli.neighbours.confirm import Tried
from vmqos.cli.neighbours.output import Told, Verdicts
from vmqos.cli.show import freshness, terminal, vm_view
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

    The agent judges by the last 120 samples of each VM, four minutes at the usual [telemetry] interval: how much of the
    L3 caches the VM holds, its traffic with memory and, where the host has hardware events, its cycles, instructions
    and cache misses. It accuses a VM only if another VM became slow at the moment when the accused one began to move
    much more from and to memory, if the figures fit that, and if nothing else explains it. So a verdict is seldom
    wrong, but a VM may be slowed although nothing is said.

    For each pair of a victim and a culprit it prints the cause (the cache, or the memory's bandwidth), how many times
    as long the victim's work takes, since when, how sure that is, and the figures that it follows from. A command
    caps the culprit: run it on a copy of the culprit's flavor, and resize the culprit to that copy.

    Below the pairs are VMs that are slower than they were, or than others of their flavor, without a neighbour that
    could be named; VMs that lack cache; and VMs that fill the cache without gain.

    With a VM, it prints only what concerns that VM, as the victim or as the culprit, and what the cache is to it.

    Without hardware events less is found, and how much slower a VM is can only be estimated; a line says so.

    With --watch it is printed anew every few seconds. In a terminal it stays in its place: q ends it, space looks at
    once, and the arrows scroll. Where the output is no terminal, or is for programs, each answer is printed below the
    last one until Ctrl-C.

    With -f json or yaml the answer is the agent's own object, and -c takes its fields. With -f csv or value there is a
    row for each pair: Slower is a factor, Confidence from 0 to 1, Taken the bytes of cache that the victim lost.

    --confirm tries a verdict out: it limits the memory bandwidth of the neighbour for some seconds. The VM is measured
    before, meanwhile, and after. If it fares better meanwhile, and worse again after, the neighbour slows it. The
    neighbour is the one that the agent accuses, or the one that --culprit names. No VM gets less than its flavor
    promises. However this ends, the limit is taken back: at once after Ctrl-C, and by the agent within seconds if this
    command is killed. --confirm asks first, and is for root.

    Where resctrl can't limit memory bandwidth (it takes Intel's MBA, or AMD's), a neighbour that takes cache is
    confined to a few ways instead, which no other VM fills then. Whether it takes the memory's bandwidth can't be tried
    there.

    'vmqos record' writes down what a verdict follows from, and 'vmqos replay' judges it again.

    The exit status is 0 whether or not a VM is slowed, and 3 if what is printed is old, because the agent answers but
    does not look at the counters any more. With --confirm it is 0 if the trial confirms that the neighbour slows the
    VM, 4 if it does not, 5 if it can't be told, 1 if nothing could be tried, and 130 after Ctrl-C.

    For example::

        vmqos neighbours
        vmqos neighbours web-1
        vmqos neighbours --watch 5
        vmqos neighbours web-1 --confirm
        vmqos neighbours web-1 --confirm --culprit batch-1 --seconds 20 --yes -f json
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
        trial = parser.add_argument_group("holding the neighbour back")
        trial.add_argument(
            "--confirm",
            action="store_true",
            help="hold the neighbour back for some seconds, and see whether the VM fares better",
        )
        trial.add_argument(
            "--culprit", metavar="VM", help="the neighbour to hold back; the one that the agent accuses, unless given"
        )
        trial.add_argument(
            "--seconds",
            metavar="N",
            type=seconds(confirm.SHORTEST, confirm.LONGEST),
            help=f"how long to measure before that, meanwhile, and after, {confirm.SHORTEST:g} to "
            f"{confirm.LONGEST:g} each, and longer where the agent looks seldom; {confirm.SECONDS:g} unless given",
        )
        trial.add_argument(
            "--limit",
            metavar="N",
            type=whole_number(1),
            help="the neighbour's limit: in per cent, or in MB/s on a host that limits bandwidth in MB/s. "
            f"{confirm.PERCENT} per cent unless given: of the memory bandwidth, or on such a host of what the "
            f"neighbour moves now. Where bandwidth can't be limited, the ways that it may fill, {confirm.FEW_WAYS} "
            "unless given",
        )
        trial.add_argument("--yes", action="store_true", help="do not ask")
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Say it once or again and again, or try it out."""
        self._tried: Tried | None = None
        problem = ""
        if not parsed_args.confirm:
            given = {"--culprit": parsed_args.culprit, "--seconds": parsed_args.seconds, "--limit": parsed_args.limit}
            if lonely := [name for name, value in {**given, "--yes": parsed_args.yes}.items() if value]:
                problem = f"{lonely[0]} belongs to --confirm"
        elif parsed_args.vm is None:
            problem = "--confirm takes the VM that is slowed"
        elif parsed_args.watch is not None:
            problem = "--confirm is done once: leave --watch out"
        if problem:
            raise exceptions.NotTogether(problem=problem, command="neighbours")
        return super().run(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Say what the agent judges, or what came of a trial."""
        if not parsed_args.confirm:
            return super().take_action(parsed_args)
        self._tried = tried = self._try(parsed_args)
        self.exit_status = confirm_view.STATUSES[tried.outcome.verdict]
        if is_for_machines(parsed_args):
            found = confirm_view.fields(tried)
            return tuple(found), tuple(found.values())
        return confirm_view.TITLES, confirm_view.rows(tried)

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Any]) -> int:
        """Print it."""
        if self._tried is None or parsed_args.formatter != "table" or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        screen = terminal_of(self)
        terminal.show(confirm_view.draw(self._tried, screen), self.app.stdout, screen)
        return 0

    def _try(self, parsed_args: argparse.Namespace) -> Tried:
        """Hold the neighbour back for some seconds."""
        agent = settings.agent(self.app.options)
        vms, interval = agent.vms(), ask.verdicts(agent)["interval"]
        victim = vm_view.find(vms, parsed_args.vm)
        culprit = vm_view.find(vms, parsed_args.culprit) if parsed_args.culprit else None
        if culprit is victim:
            raise exceptions.NotTogether(problem="a VM is not its own neighbour", command="neighbours")
        parties = confirm.find(agent, victim, culprit, vms, parsed_args.limit)
        each = confirm.length(parsed_args.seconds or confirm.SECONDS, interval)
        if not parsed_args.yes:
            confirm_first(self, confirm_view.question(parties, each))
        with confirm_view.Progress(self.app.stderr, each + interval, parties) as progress:
            return confirm.run(agent, parties, each, interval, progress.report)

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
