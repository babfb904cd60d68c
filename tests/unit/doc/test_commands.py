# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import configparser
import importlib
import re
import shlex

import pytest

from tests.unit.doc.pages import CHECKOUT, SOURCE, shell_lines, written
from vmqos.cli.app import USAGE_STATUS, VmqosApp
from vmqos.cli.main import CLOSED_PIPE_STATUS, INTERRUPT_STATUS
from vmqos.cli.neighbours import confirm_view
from vmqos.cli.show.freshness import OLD_STATUS
from vmqos.cli.size import view

SETUP = configparser.ConfigParser()
SETUP.read(CHECKOUT / "setup.cfg")
COMMANDS = {
    name.strip().replace("_", " "): place.strip()
    for name, _, place in (line.partition("=") for line in SETUP["entry_points"]["vmqos.cli"].strip().splitlines())
}
LINES = sorted({(str(page.relative_to(CHECKOUT)), line) for page in written() for line in shell_lines(page)})
PROGRAM = re.compile(r"(?:^|\bsudo +|\| *)(?:/opt/vmqos/bin/)?(vmqos(?:-agent|-gateway)?|tools/\w+|tox)(?= |$)(.*)")


def uses(program: str) -> list[tuple[str, list[str]]]:
    """Where a program is called, and with which arguments."""
    found = []
    for page, line in LINES:
        match = PROGRAM.search(line)
        if match and re.fullmatch(program, match[1]) and not line.startswith("#"):
            words = shlex.split(match[2], comments=True)
            end = next((index for index, word in enumerate(words) if word in ("|", ">", "&&", ";")), len(words))
            found.append((page, [match[1], *words[:end]]))
    return found


def test_the_documentation_calls_the_programs_at_all() -> None:
    assert len(uses("vmqos")) > 10


@pytest.mark.parametrize(("page", "words"), uses("vmqos"), ids=lambda value: str(value))
def test_a_vmqos_command_in_the_documentation_exists_and_takes_these_arguments(page, words) -> None:
    if words[1:] in (["--version"], ["complete"], ["complete", "--shell", "zsh"]):
        # argparse's and cliff's own.
        return
    _, rest = VmqosApp().parser.parse_known_args(words[1:])
    name = next((name for name in COMMANDS if rest[: len(name.split())] == name.split()), None)
    assert name is not None, f"{page}: there is no command {' '.join(words)!r}"
    module, _, factory = COMMANDS[name].partition(":")
    command = getattr(importlib.import_module(module), factory)(None, None)
    command.get_parser(name).parse_args(rest[len(name.split()) :])


def test_the_manual_page_and_the_guide_have_every_exit_status() -> None:
    manual = (SOURCE / "man/vmqos.rst").read_text().partition("\nExit status\n")[2].partition("\nEnvironment\n")[0]
    guide = (SOURCE / "operator/command-line.rst").read_text().partition("Exit statuses: ")[2].partition("\n\n")[0]
    told = {int(number) for line in re.findall(r"^[\d, ]+$", manual, re.MULTILINE) for number in line.split(", ")}
    verdicts = {*confirm_view.STATUSES.values(), view.KNOWN, view.CHANGED, view.GUESSED}
    assert told == {0, 1, USAGE_STATUS, OLD_STATUS, *verdicts, INTERRUPT_STATUS, CLOSED_PIPE_STATUS}
    assert {int(number) for number in re.findall(r"\d+", guide)} == told


@pytest.mark.parametrize(("page", "words"), uses("vmqos-agent"), ids=lambda value: str(value))
def test_a_call_of_the_agent_in_the_documentation_has_options_that_exist(page, words) -> None:
    options = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
    assert options <= {"--config-file", "--config-dir", "--once", "--debug", "--version"}, page


@pytest.mark.parametrize(("page", "words"), uses(r"tools/\w+"), ids=lambda value: str(value))
def test_a_tool_in_the_documentation_exists(page, words) -> None:
    assert (CHECKOUT / words[0]).is_file(), page


@pytest.mark.parametrize(("page", "words"), uses("tox"), ids=lambda value: str(value))
def test_a_tox_environment_in_the_documentation_exists(page, words) -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(CHECKOUT / "tox.ini")
    environment = words[words.index("-e") + 1]
    assert environment == "py3" or f"testenv:{environment}" in tox, page


def test_the_programs_that_are_promised_are_installed() -> None:
    scripts = SETUP["entry_points"]["console_scripts"]
    assert "vmqos = vmqos.cli.main:main" in scripts
    assert "vmqos-agent = vmqos.programs:agent" in scripts
    assert "vmqos-gateway = vmqos.programs:gateway" in scripts
