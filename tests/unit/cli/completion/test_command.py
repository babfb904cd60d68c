# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos.cli.completion import places


def test_the_places_of_vms_are_those_that_the_parser_has() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("vms", metavar="VM", nargs="*")
    parser.add_argument("--neighbor-vm", "-n", metavar="VM")
    parser.add_argument("--vm", metavar="UUID")
    parser.add_argument("--flavor", metavar="FLAVOR")
    parser.add_argument("-d", "--delay", metavar="SECONDS")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--state", metavar="STATE", nargs="+", choices=("kept", "none"))
    parser.add_argument("--sort", choices=("name",))
    parser.add_argument("--odd", choices=("$(reboot)",))
    found = places.of_parser(parser)
    assert (found.is_argument, found.named, found.uuids) == (True, ("--neighbor-vm", "-n"), ("--vm",))
    assert (found.flavors, found.others) == (("--flavor",), ("-d", "--delay", "--state", "--sort", "--odd"))
    assert (found.choices, found.several) == ({"--state": ("kept", "none"), "--sort": ("name",)}, ("--state",))
    assert not places.of_parser(argparse.ArgumentParser()).any


def test_every_command_that_takes_a_vm_completes_it(run: Run) -> None:
    for shell in ("bash", "zsh"):
        made = run("complete", "--shell", shell).out
        assert "'top'" in made and "'vm show'" in made and "--neighbor-vm" in made
        assert "vm names" in made
    assert run("complete").out.rstrip().endswith("complete -F _vmqos_with_vms vmqos")
    assert "vm names" not in run("complete", "--shell", "none").out


def asked_by_bash(typed: str, run: Run) -> str:
    """What bash asks the program for, for the next word; nothing where cliff's function completes it."""
    # bash-completion's own function is not here to be had: it tells the words that were typed.
    script = f"""
        _get_comp_words_by_ref() {{ words=({typed} ''); cword=$((${{#words[@]}} - 1)); prev=${{words[cword-1]}}; }}
        vmqos() {{ echo "$*"; }}
        command() {{ "$@"; }}
        {run("complete").out}
        _vmqos() {{ COMPREPLY=(); }}
        _vmqos_with_vms
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.removesuffix("\n")


def asked_by_zsh(typed: str, run: Run) -> str:
    """The same of zsh."""
    script = f"""
        words=({typed} ''); CURRENT=$#words; PREFIX=
        _files() {{ }}
        vmqos() {{ echo "$*"; }}
        command() {{ "$@"; }}
        compadd() {{ shift; print -rl -- "$@" }}
        {run("complete", "--shell", "zsh").out.replace("_vmqos_words() {", "_vmqos_words() { return; ")}
    """
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.removesuffix("\n")


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("vmqos size --flavor", "vm names --flavors"),
        ("vmqos size web-1 --flavor", "vm names --flavors"),
        ("vmqos vm list --flavor", "vm names --flavors"),
        ("vmqos vm list --long --flavor", "vm names --flavors"),
        ("vmqos vm show", "vm names"),
        ("vmqos top web-1", "vm names"),
        # Options that all commands share stand before the command; some of them say whom to ask.
        ("vmqos --no-color vm show", "vm names"),
        ("vmqos -v --log-file vm vm show", "vm names"),
        ("vmqos --socket /run/a --no-color vm show", "--socket /run/a vm names"),
        ("vmqos --socket=/run/a --config-file b top", "--socket=/run/a --config-file b vm names"),
        ("vmqos --socket", ""),
        ("vmqos top --delay", ""),
        ("vmqos vm list kept", ""),
    ],
)
def test_a_shell_asks_for_the_vms_where_one_is_to_be_named(typed: str, asked: str, run: Run) -> None:
    in_bash = asked_by_bash(typed, run)
    assert in_bash == (f"{asked} --bash=" if asked else "")
    assert asked_by_zsh(typed, run) == asked


STATES = "kept pending degraded none"


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("vmqos vm list --state", STATES),
        ("vmqos vm list --long --state kept", STATES),
        ("vmqos vm list --flavor m1 --state kept pending", STATES),
        ("vmqos --socket /run/a vm list --state", STATES),
        ("vmqos vm list --state kept --long", ""),
        ("vmqos vm list --state kept -f json", ""),
        ("vmqos --log-file vm vm list -c --state", STATES),
        ("vmqos top --once --format", "table csv json"),
        ("vmqos top --format csv", "vm names"),
    ],
)
def test_a_word_of_an_option_that_takes_one_of_some_is_completed(typed: str, words: str, run: Run) -> None:
    assert asked_by_bash(typed, run).split() == [*words.split(), *(["--bash="] if words == "vm names" else [])]
    assert asked_by_zsh(typed, run).split() == words.split()


def test_another_name_of_the_program_is_completed_too(run: Run) -> None:
    assert run("complete", "--name", "my-vmqos").out.rstrip().endswith("complete -F _my_vmqos_with_vms my-vmqos")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_itself_finds_no_fault_in_it(shell: str, run: Run, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(run("complete", "--shell", shell).out)
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
