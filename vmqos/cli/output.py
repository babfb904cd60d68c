# SPDX-License-Identifier: Apache-2.0
"""The base classes of commands that print data: tables for people, the agent's own JSON for programs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cliff.lister import Lister
from cliff.show import ShowOne

from vmqos.cli import terminal as terminals
from vmqos.cli.help_text import Documented
from vmqos.cli.tables import TableFormatter
from vmqos.cli.terminal import Terminal

MACHINE_FORMATS = frozenset({"json", "yaml"})
"""The formats that can carry nested values: they show the API's objects as they are, with its field names."""


def is_for_machines(parsed_args: argparse.Namespace) -> bool:
    """Whether the output is to be read by a program."""
    return parsed_args.formatter in MACHINE_FORMATS


def terminal_of(command: Lister | ShowOne) -> Terminal:
    """The abilities of the application's standard output."""
    return terminals.of_stream(command.app.stdout, os.environ, command.app.options.no_color)


class Listing(Documented, Lister):
    """A command that prints a list.

    :cvar optional: titles of columns that a table may leave out in a narrow terminal, the least important first.
    """

    optional: tuple[str, ...] = ()

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Print the rows with the chosen formatter."""
        if parsed_args.formatter == "table":
            self.formatter = TableFormatter(terminal_of(self), () if parsed_args.columns else self.optional)
        return super().produce_output(parsed_args, column_names, data)


class Details(Documented, ShowOne):
    """A command that prints one thing."""

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print the fields with the chosen formatter."""
        if parsed_args.formatter == "table":
            self.formatter = TableFormatter(terminal_of(self))
        return super().produce_output(parsed_args, column_names, data)


def as_rows(objects: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """JSON objects as columns and rows, a column for each key that any of them has."""
    keys = tuple(dict.fromkeys(key for item in objects for key in item))
    return keys, [tuple(item.get(key) for key in keys) for item in objects]
