# SPDX-License-Identifier: Apache-2.0
"""The base classes of commands that print data: tables for people, the agent's own JSON for programs."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.command import Command
from cliff.formatters.shell import ShellFormatter
from cliff.lister import Lister
from cliff.show import ShowOne

from vmqos.cli import exceptions
from vmqos.cli.common.help_text import Documented
from vmqos.cli.show import freshness
from vmqos.cli.show import terminal as terminals
from vmqos.cli.show.freshness import Freshness
from vmqos.cli.show.safe_text import neutralise
from vmqos.cli.show.tables import TableFormatter
from vmqos.cli.show.terminal import Terminal
from vmqos.local_api.client import AgentClient

MACHINE_FORMATS = frozenset({"json", "yaml"})
"""The formats that can carry nested values: they show the API's objects as they are, with its field names."""


_COUNT = re.compile(r"([0-9]{1,15})(?=$|[ /:]|c\+)")
"""A number at the beginning of a cell, such as ``10``, ``0 of 4``, ``7/8`` and ``2c+4d``; no UUID begins so."""

_SHELL_SPECIAL = re.compile(r"[\\$`]")
"""What means something to a shell between double quotation marks, besides such a mark."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
"""What can't stand in the name of a variable."""


def is_for_machines(parsed_args: argparse.Namespace) -> bool:
    """Whether the output is to be read by a program."""
    return parsed_args.formatter in MACHINE_FORMATS


def terminal_of(command: Lister | ShowOne) -> Terminal:
    """The abilities of the application's standard output."""
    return terminals.of_stream(command.app.stdout, os.environ, command.app.options.no_color)


def confirm_first(command: Command, question: str) -> None:
    """Say what will be done, and ask whether to go on.

    :param question: sentences, with a line break at the end.
    :raises vmqos.cli.exceptions.NotConfirmed: if the operator says no, or can't be asked.
    """
    app = command.app
    if not app.stdin.isatty():
        raise exceptions.NotConfirmed(reason="there is no terminal to ask on; say --yes")
    # What is printed may be for a program.
    app.stderr.write(f"{_as_wide(question, app)}Continue? [y/N] ")
    app.stderr.flush()
    if app.stdin.readline().strip().lower() not in ("y", "yes"):
        raise exceptions.NotConfirmed(reason="you did not say yes")


def _as_wide(question: str, app: Any) -> str:
    """The lines of a question, broken between words where the terminal would break them within one."""
    if not app.stderr.isatty():
        return question
    width = terminals.of_stream(app.stderr, os.environ, app.options.no_color).width
    lines = [
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) if len(line) > width else line
        for line in question.splitlines()
    ]
    return "".join(f"{line}\n" for line in lines)


class Told(Documented):
    """A command that prints what something else told it.

    :ivar exit_status: of a command that printed all it was asked for; a command sets it where there is more to say.
    """

    exit_status = 0

    def warn_if_old(self, agent: AgentClient, parts: Collection[str]) -> None:
        """Say on standard error, and by the exit status, if what the agent tells is old.

        :param parts: what the command shows: see :func:`vmqos.cli.show.freshness.ask`.
        """
        self.warn(freshness.ask(agent, parts), parts)

    def warn(self, found: Freshness, parts: Collection[str]) -> None:
        """Say on standard error, and by the exit status, what :func:`vmqos.cli.show.freshness.ask` has found."""
        if found.warning:
            self.app.LOG.warning(found.warning)
            self.exit_status = freshness.OLD_STATUS
        for sentence in found.missing if "vms" in parts else ():
            self.app.LOG.warning(sentence)

    def check_columns(self, wanted: Iterable[str], known: Sequence[str]) -> None:
        """Check that there is each column that ``-c`` asks for; cliff leaves out those that there are not.

        :raises vmqos.cli.exceptions.NoSuchColumn: if one is not there.
        """
        found = set(map(_plain, known))
        for name in wanted:
            if _plain(name) not in found:
                raise exceptions.NoSuchColumn(wanted=neutralise(name), known=", ".join(known) or "none")

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print what there is."""
        return super().run(parsed_args) or self.exit_status


class Listing(Told, Lister):
    """A command that prints a list.

    :cvar optional: titles of columns that a table may leave out in a narrow terminal, the least important first.
    """

    optional: tuple[str, ...] = ()

    @property
    def need_sort_by_cliff(self) -> bool:
        """No: in a text cliff compares digits, so that 10 comes before 9."""
        return False

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> int:
        """Print the rows with the chosen formatter."""
        # The keys of the API's objects are not known where there are none.
        column_names = column_names or parsed_args.columns
        self.check_columns(parsed_args.columns, column_names)
        titles, rows = [_plain(title) for title in column_names], list(data)
        # The first column counts most. As with cliff, one that there is not is passed over.
        descending = parsed_args.sort_direction == "desc"
        for name in reversed(parsed_args.sort_columns):
            if _plain(name) in titles:
                cell = itemgetter(titles.index(_plain(name)))
                rows = sorted(rows, key=lambda row: _rank(cell(row)), reverse=descending)
        if parsed_args.formatter == "table":
            self.formatter = TableFormatter(terminal_of(self), () if parsed_args.columns else self.optional)
        return super().produce_output(parsed_args, column_names, rows)


class Details(Told, ShowOne):
    """A command that prints one thing."""

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]) -> int:
        """Print the fields with the chosen formatter."""
        self.check_columns(parsed_args.columns, column_names)
        if parsed_args.formatter == "table":
            self.formatter = TableFormatter(terminal_of(self))
        elif parsed_args.formatter == "shell":
            self.formatter = _ShellFormatter()
        return super().produce_output(parsed_args, column_names, data)


class _ShellFormatter(ShellFormatter):
    """Writes ``-f shell`` so that a shell which evaluates it sets variables, and does nothing else.

    cliff escapes quotation marks in a value, and lets titles be as they are. The names of VMs are in both, and their
    users choose them: a name with a command in it would have the operator's shell run that.
    """

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: argparse.Namespace
    ) -> None:
        """Write a variable for each field."""
        names = [_NO_NAME.sub("_", title) for title in column_names]
        super().emit_one(names, [_SHELL_SPECIAL.sub(r"\\\g<0>", _text(value)) for value in data], stdout, parsed_args)


def _text(value: Any) -> str:
    return str(value.machine_readable() if isinstance(value, FormattableColumn) else value)


def _plain(title: str) -> str:
    """A column's title by cliff's own rule: case does not count, and a blank is an underscore."""
    return title.lower().strip().replace(" ", "_")


def _rank(cell: Any) -> tuple[bool, bool, float, str]:
    """What a row is sorted by: a number, or the one that a text begins with, then texts, then what there is not."""
    value = cell.machine_readable() if isinstance(cell, FormattableColumn) else cell
    if isinstance(value, int | float):
        return False, False, value, ""
    begins = _COUNT.match(str(value))
    return value is None, begins is None, float(begins[1]) if begins else 0.0, str(value)


def as_rows(objects: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """JSON objects as columns and rows, a column for each key that any of them has."""
    keys = tuple(dict.fromkeys(key for item in objects for key in item))
    return keys, [tuple(item.get(key) for key in keys) for item in objects]
