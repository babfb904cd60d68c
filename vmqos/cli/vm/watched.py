# SPDX-License-Identifier: Apache-2.0
"""The option ``--watch`` of a command that lists."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, Generic, NoReturn

from vmqos.cli.common.option_values import seconds
from vmqos.cli.common.output import Listing, terminal_of
from vmqos.cli.show import freshness
from vmqos.cli.show.terminal import Terminal
from vmqos.cli.vm import watch
from vmqos.cli.vm.watch import AnyLook


class Watched(Listing, Generic[AnyLook]):
    """A command whose list can be made anew every few seconds.

    :cvar called: the command, as the heading has it.
    :cvar again: what it does every few seconds, for the help.
    :cvar parts: what of the agent's knowledge the list shows, see :func:`vmqos.cli.show.freshness.ask`.
    """

    called: ClassVar[str]
    again: ClassVar[str]
    parts: ClassVar[Collection[str]]

    def look(self, parsed_args: argparse.Namespace) -> AnyLook:
        """Ask the agent."""
        raise NotImplementedError

    def cells(self, look: AnyLook, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Titles and rows of what the operator wants to see of a look."""
        raise NotImplementedError

    def has_titles(self, parsed_args: argparse.Namespace) -> bool:
        """Whether people see a table, with titles."""
        return True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add how often to list."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--watch",
            nargs="?",
            type=seconds(watch.LEAST_DELAY, watch.LONGEST_DELAY),
            const=watch.DELAY,
            metavar="SECONDS",
            help=f"{self.again} every so many seconds, {watch.LEAST_DELAY:g} or more; {watch.DELAY:g} unless given",
        )
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List once, or again and again."""
        if parsed_args.watch is None:
            return super().run(parsed_args)
        screen = terminal_of(self)
        if parsed_args.formatter == "table" and screen.bounded and os.environ.get("TERM") != "dumb":
            return self._watch(parsed_args, screen)
        self._repeat(parsed_args)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Look, and say if that is old."""
        look = self.look(parsed_args)
        self.warn(look.freshness, self.parts)
        return self.cells(look, parsed_args)

    def _watch(self, parsed_args: argparse.Namespace, screen: Terminal) -> int:
        def table(look: AnyLook) -> str:
            printed, drawing = self.app.stdout, watch.Drawing(screen)
            self.app.stdout = drawing
            try:
                self.produce_output(parsed_args, *self.cells(look, parsed_args))
            finally:
                self.app.stdout = printed
            return drawing.getvalue()

        view = watch.View(parsed_args.watch, self.called, self.has_titles(parsed_args))
        last = watch.run(lambda: self.look(parsed_args), table, self.app.stdout, screen, view)
        return freshness.OLD_STATUS if last.freshness.warning else 0

    def _repeat(self, parsed_args: argparse.Namespace) -> NoReturn:
        """Print list after list until the operator or the reader of the pipe ends it."""
        print_list = super().run

        def once(number: int) -> None:
            self.exit_status = 0
            if number and parsed_args.formatter == "table":
                self.app.stdout.write("\n")
            print_list(parsed_args)
            self.app.stdout.flush()

        watch.repeat(once, parsed_args.watch, self.app.LOG.error)
