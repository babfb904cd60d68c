# SPDX-License-Identifier: Apache-2.0
"""The list of all commands, as ``vmqos --help`` has it, and which of them an unknown word may have meant."""

from __future__ import annotations

import argparse
import difflib
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import autopage.argparse
from cliff.app import App
from cliff.help import HelpCommand, HelpExit

from vmqos.cli.common.help_text import fail_if_not_printed

_INDENT = 2


class Help(HelpCommand):
    """Print the help of a command, or list all of them."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Have it fail where its own help can't be printed."""
        parser = super().get_parser(prog_name)
        fail_if_not_printed(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Leave the help of one command to cliff."""
        if parsed_args.cmd:
            return super().take_action(parsed_args)
        show(self.app)


def show(app: App) -> NoReturn:
    """Print what ``--help`` prints: the application's options, and a line for each command.

    cliff's own list is neither in columns nor as wide as the terminal.

    :raises cliff.help.HelpExit: when it is printed.
    """
    pager = autopage.argparse.help_pager(app.stdout)
    with pager as out:
        autopage.argparse.use_color_for_parser(app.parser, pager.to_terminal())
        app.parser.print_help(out)
        lines = {name: point.load()(app, None).get_description() for name, point in app.command_manager}
        out.write(f"\nCommands:\n{listing(lines, shutil.get_terminal_size().columns)}")
        out.write(f"\n'{app.NAME} help COMMAND' explains one, with examples.\n")
    raise HelpExit


def listing(lines: Mapping[str, str], width: int) -> str:
    """Two columns: each command, and what it does in a line or, where that is too long, in several.

    :param lines: what each command does, by its name.
    :param width: the terminal's columns.
    """
    column = _INDENT + max(map(len, lines)) + _INDENT
    return "".join(
        textwrap.fill(
            lines[name].split("\n")[0].rstrip("."),
            max(width, column + 20),
            initial_indent=f"{'':{_INDENT}}{name}".ljust(column),
            subsequent_indent=" " * column,
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
        for name in sorted(lines)
    )


def meant(words: Sequence[str], commands: Iterable[str]) -> list[str]:
    """The commands that words which are none may have meant; none where nothing is like them.

    They are those that begin with the first word, else those that have it for a word, such as ``list``, else those
    whose first word is spelt nearly so.
    """
    known, word = sorted(commands), words[0]
    begin = [name for name in known if name.startswith(word)]
    if begin:
        return begin
    having = [name for name in known if word in name.split()]
    if having:
        return having
    close = difflib.get_close_matches(word, {name.split()[0] for name in known}, n=1, cutoff=0.6)
    return [name for name in known if name.split()[0] in close]
