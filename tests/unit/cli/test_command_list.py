# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from vmqos.cli.command_list import listing, meant

LINES = {
    "vm list": "List the running VMs, those in trouble first.\n\nMore of it.",
    "gnocchi-resources merge": "Add the meters of vmqos to a copy of Ceilometer's gnocchi_resources.yaml",
}


def test_all_lines_begin_in_one_column_and_fit_the_terminal() -> None:
    assert listing(LINES, 60).splitlines() == [
        "  gnocchi-resources merge  Add the meters of vmqos to a copy",
        "                           of Ceilometer's",
        "                           gnocchi_resources.yaml",
        "  vm list                  List the running VMs, those in",
        "                           trouble first",
    ]


def test_a_terminal_that_is_too_narrow_for_columns_gets_them_all_the_same() -> None:
    assert max(map(len, listing(LINES, 10).splitlines())) <= 27 + 22


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("vm ls", ["vm list", "vm show"]),
        ("show it", ["cache show", "vm show"]),
        ("cahce show", ["cache show"]),
        ("version", []),
        ("foo", []),
    ],
)
def test_only_commands_that_are_like_a_word_are_offered(words: str, found: list[str]) -> None:
    assert meant(words.split(), ["vm show", "vm list", "cache show", "top", "reset"]) == found
