# SPDX-License-Identifier: Apache-2.0
"""Help texts with paragraphs and examples: argparse alone would run them all together."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from typing import Any

import autopage.argparse
from cliff.command import Command

_EXAMPLE = "    "


class ParagraphFormatter(autopage.argparse.HelpFormatter):
    """Wraps each paragraph of a description by itself, and leaves indented ones as they are.

    A description is reStructuredText too, for manual pages: the ``::`` before an indented paragraph becomes a colon.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = inspect.cleandoc(text).split("\n\n")
        return "\n\n".join(
            paragraph
            if paragraph.startswith(_EXAMPLE)
            else str(super(ParagraphFormatter, self)._fill_text(re.sub(r"::$", ":", paragraph), width, indent))
            for paragraph in paragraphs
        )


def fail_if_not_printed(parser: argparse.ArgumentParser) -> None:
    """Have a parser end with an error where its help or its version can't be printed; argparse itself ends well.

    Wrong usage stays wrong usage where standard error can't be written.
    """

    def print_message(message: str, file: Any = None) -> None:
        file = file or sys.stderr
        try:
            file.write(message)
        except OSError as error:
            if file is sys.stderr:
                return
            if isinstance(error, BrokenPipeError):
                raise
            parser.exit(1, f"vmqos: {error}\n")

    parser._print_message = print_message  # type: ignore[method-assign]


class Documented(Command):
    """A command whose docstring is its manual page: what it does in a line, how, and examples."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Keep the docstring's paragraphs."""
        parser = super().get_parser(prog_name)
        fail_if_not_printed(parser)
        parser.formatter_class = ParagraphFormatter
        return parser
