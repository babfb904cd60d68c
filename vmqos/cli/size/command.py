# SPDX-License-Identifier: Apache-2.0
"""``vmqos size``: how many ways a VM needs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from vmqos.cli import exceptions, settings
from vmqos.cli.neighbours import ask
from vmqos.cli.option_values import whole_number
from vmqos.cli.output import Details, is_for_machines, terminal_of
from vmqos.cli.show import terminal, vm_view
from vmqos.cli.size import stepping, view
from vmqos.cli.size.stepping import Room, Sized


class Size(Details):
    """Say how many ways a VM needs, by letting it have more of them for some minutes.

    The VM has ways of its own (hw:cache_ways). It is let have one more after the other, from those that are free, and
    its misses are counted with each: from when it has filled the new way until they are known closely. The curve of
    what it misses, the fewest ways that are nearly as good as all that were tried, and the extra spec for that are
    printed. Ways that spare a VM less than 5 of 100 references are not worth their price.

    No VM gets less than its flavor promises: not this one, which goes up only, nor any other. If another VM needs the
    ways, it has them at once, and what was counted until then is what is said. Masks of other VMs may be moved
    meanwhile, as for any VM that comes. However this ends, the ways are given back: Ctrl-C gives them back at once, and
    if this command is killed, the agent does it within seconds. It takes 15 minutes at most, and far less for a VM that
    does the same all the time.

    What a VM would miss with fewer ways than it was promised is not known. Where nothing counts misses of the L3, its
    traffic with memory stands for them, and the number is a guess. A VM that does other work from one minute to the
    next can't be sized; a line says so.

    This asks first, unless --yes is given, and is for root.

    The exit status is 0 if the misses were counted, 4 if the VM did other work meanwhile, 5 if the number is a guess,
    and 1 if nothing could be tried.

    For example::

        vmqos size web-1
        vmqos size web-1 --most 6
        vmqos size web-1 --yes -f json
        vmqos size web-1 --yes -f value -c ways
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add which VM, and how far to go."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "vm", metavar="VM", help="its UUID, a beginning of the UUID that no other VM has, or its name"
        )
        parser.add_argument(
            "--most",
            metavar="N",
            type=whole_number(1),
            help="let it have no more than so many ways; all that are free, unless given",
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Try it out."""
        self._sized = sized = self._try(parsed_args)
        self.exit_status = view.status(sized)
        found = view.fields(sized)
        if not is_for_machines(parsed_args):
            found["curve"] = " ".join(f"{ways}={part:.4f}" for ways, part in sized.found.curve.items())
        return tuple(found), tuple(found.values())

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Draw the curve, or print the fields where that is asked for."""
        if parsed_args.formatter != "table" or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        screen = terminal_of(self)
        terminal.show(view.draw(self._sized, screen), self.app.stdout, screen)
        return 0

    def _try(self, parsed_args: argparse.Namespace) -> Sized:
        agent = settings.agent(self.app.options)
        interval = ask.verdicts(agent)["interval"]
        room = stepping.find(agent, vm_view.find(agent.vms(), parsed_args.vm), parsed_args.most)
        stepping.check(room, interval)
        if not parsed_args.yes:
            self._ask(room)
        with view.Progress(self.app.stderr, room) as progress:
            return stepping.run(agent, room, interval, progress.report)

    def _ask(self, room: Room) -> None:
        if not self.app.stdin.isatty():
            raise exceptions.NotConfirmed(reason="there is no terminal to ask on; say --yes")
        # What is printed may be for a program.
        self.app.stderr.write(f"{view.question(room)}Continue? [y/N] ")
        self.app.stderr.flush()
        if self.app.stdin.readline().strip().lower() not in ("y", "yes"):
            raise exceptions.NotConfirmed(reason="you did not say yes")
