# SPDX-License-Identifier: Apache-2.0
"""Help texts with paragraphs and examples: argparse alone would run them all together."""

from __future__ import annotations

import argparse
import inspect
import re

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


class Documented(Command):
    """A command whose docstring is its manual page: what it does in a line, how, and examples."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Keep the docstring's paragraphs."""
        parser = super().get_parser(prog_name)
        parser.formatter_class = ParagraphFormatter
        return parser
