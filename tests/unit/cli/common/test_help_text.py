# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.unit.cli.conftest import Run
from vmqos.cli.common.help_text import ParagraphFormatter


def test_paragraphs_are_wrapped_each_by_itself_and_examples_not_at_all() -> None:
    formatter = ParagraphFormatter("vmqos", width=30)
    formatter.add_text(
        """One line.

        A second paragraph that is longer than a line.

        For example::

            vmqos plan --flavor-spec hw:cache_ways=3
        """
    )
    assert formatter.format_help() == (
        "One line.\n\nA second paragraph that is\nlonger than a line.\n\nFor example:\n\n"
        "    vmqos plan --flavor-spec hw:cache_ways=3\n"
    )


def test_examples_stand_on_lines_of_their_own(run: Run) -> None:
    assert (
        "For example:\n\n    vmqos cache show\n    vmqos cache show 0 -f json\n" in run("cache", "show", "--help").out
    )
