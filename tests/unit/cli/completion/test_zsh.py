# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

from cliff.complete import CompleteDictionary

from vmqos.cli.completion.zsh import CompleteZsh


def written() -> str:
    known = CompleteDictionary()
    known.add_command(["vm", "list"], [])
    known.add_command(["gnocchi-resources", "merge"], [])
    output = io.StringIO()
    CompleteZsh("vmqos", output).write(known.get_commands(), known.get_data())
    return output.getvalue()


def test_the_function_is_for_the_program_and_called_by_its_file() -> None:
    lines = written().splitlines()
    assert lines[0] == "#compdef vmqos"
    assert "_vmqos_words() {" in lines


def test_each_command_has_the_words_that_may_follow_it() -> None:
    text = written()
    assert "    'none' 'gnocchi-resources vm'\n" in text
    assert "    'vm' 'list'\n" in text
    # The entry point's underscore is a blank of the command line; a hyphen is the name's own.
    assert "    'gnocchi-resources merge' ''\n" in text


def test_braces_of_the_shell_are_single() -> None:
    text = written()
    assert "{{" not in text and "}}" not in text
    assert text.count("{") == text.count("}")
