# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tools.lab.workspace import CHECKOUT
from vmqos.cli.show import no_number
from vmqos.telemetry import Missing

PAGE = (CHECKOUT / "vmqos" / "gateway" / "page" / "static" / "format.js").read_text()


def of_the_page(table: str) -> dict[str, str]:
    """A table of the page's, as ``format.js`` has it."""
    found = re.search(rf"const {table} = \{{(.*?)\n\}};", PAGE, re.DOTALL)
    assert found is not None
    return {key.strip('"'): text for key, text in re.findall(r'  ([\w-]+|"[\w-]+"): "(.*)",', found[1])}


def test_each_reason_has_a_sentence_and_a_word_that_a_column_has_room_for() -> None:
    assert set(no_number.SENTENCES) == {missing.value for missing in Missing}
    for missing in Missing:
        assert len(no_number.word(missing)) <= len("unassigned")


def test_the_command_line_and_the_page_have_the_same_words() -> None:
    assert of_the_page("SENTENCES") == no_number.SENTENCES
    assert of_the_page("WORDS") == no_number.WORDS


@pytest.mark.parametrize("told", [no_number.word, no_number.sentence])
def test_the_word_of_a_later_agent_is_told_and_not_obeyed(told: Callable[[str], str]) -> None:
    assert told("too-hot") == "too-hot"
    assert "\x1b" not in told("\x1b[2J")
