# SPDX-License-Identifier: Apache-2.0
"""How verdicts on neighbours are printed, whether the agent or a replay gave them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from cliff.formatters.base import SingleFormatter

from vmqos.cli.common.output import Listing, is_for_machines, terminal_of
from vmqos.cli.neighbours import view
from vmqos.cli.show import terminal
from vmqos.local_api import contract


@dataclass(frozen=True, slots=True)
class Told:
    """What is to be printed.

    :ivar answer: of all VMs, or what of it concerns one.
    :ivar called: a name for each VM, by UUID.
    :ivar vm: the UUID of that one.
    """

    answer: contract.Neighbours
    called: Mapping[str, str]
    vm: str | None = None


class Verdicts(Listing):
    """A command that prints verdicts: sentences for people, a row for each pair, or the API's own object."""

    def prepare(self, told: Told, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Titles and rows; for a program that takes nested values, the fields of the API and their values."""
        self._told = told
        if is_for_machines(parsed_args):
            return tuple(told.answer), tuple(told.answer.values())
        return view.TITLES, view.rows(told.answer, told.called)

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Any]) -> int:
        """Print what :meth:`prepare` has."""
        if is_for_machines(parsed_args):
            self.check_columns(parsed_args.columns, column_names)
            wanted = {name.lower().strip().replace(" ", "_") for name in parsed_args.columns} or set(column_names)
            fields = [(name, value) for name, value in zip(column_names, data, strict=True) if name in wanted]
            names, values = zip(*fields, strict=True)
            # Both formats can print a list and a single thing.
            cast(SingleFormatter, self.formatter).emit_one(names, values, self.app.stdout, parsed_args)
            return 0
        if parsed_args.formatter != "table" or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        screen = terminal_of(self)
        told = self._told
        terminal.show(view.draw(told.answer, told.called, told.vm, screen), self.app.stdout, screen)
        return 0
