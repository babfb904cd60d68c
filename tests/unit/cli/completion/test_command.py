# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from vmqos.cli.app import VmqosApp
from vmqos.cli.completion import places
from vmqos.cli.simulate import Simulate
from vmqos.simulator import PROFILES


def test_a_parser_tells_what_each_place_takes() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("vms", metavar="VM", nargs="*")
    parser.add_argument("--neighbor-vm", "-n", metavar="VM")
    parser.add_argument("--vm", metavar="UUID")
    parser.add_argument("--flavor", metavar="FLAVOR")
    parser.add_argument("-d", "--delay", metavar="SECONDS")
    parser.add_argument("--log", metavar="FILE")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--state", metavar="STATE", nargs="+", choices=("kept", "none"))
    parser.add_argument("--sort", choices=("name",))
    parser.add_argument("--odd", choices=("$(reboot)",))
    found = places.of_parser(parser)
    assert found.argument == "names"
    assert found.values == {
        "--neighbor-vm": "names",
        "-n": "names",
        "--vm": "uuids",
        "--flavor": "flavors",
        "-d": "other",
        "--delay": "other",
        "--log": "files",
        "--state": "choices",
        "--sort": "choices",
        "--odd": "other",
    }
    assert (found.choices, found.several) == ({"--state": ("kept", "none"), "--sort": ("name",)}, ("--state",))
    assert found.options == (
        "--help",
        "--neighbor-vm",
        "--vm",
        "--flavor",
        "--delay",
        "--log",
        "--once",
        "--state",
        "--sort",
        "--odd",
    )
    assert places.of_parser(argparse.ArgumentParser()).argument == "other"


def test_the_simulated_machines_are_the_words_of_the_option_that_names_one() -> None:
    found = places.of_parser(Simulate(None, None).get_parser("vmqos simulate"))
    assert found.choices == {"--profile": tuple(PROFILES)}
    assert (found.values["--profile"], found.argument) == ("choices", "files")


def test_each_beginning_of_a_command_has_the_words_that_may_follow_it() -> None:
    found = places.following(["vm show", "gnocchi-resources merge", "vm list", "top"])
    assert found == {"": ("gnocchi-resources", "top", "vm"), "gnocchi-resources": ("merge",), "vm": ("list", "show")}


def test_every_value_of_an_option_that_all_commands_share_is_a_file() -> None:
    # Both functions take it for granted.
    assert set(places.of_parser(VmqosApp().parser).values) == {"--log-file", "--socket", "--config-file"}


def test_every_command_that_takes_a_vm_completes_it(run: Run) -> None:
    for shell in ("bash", "zsh"):
        made = run("complete", "--shell", shell).out
        assert "'top'" in made and "'vm show'" in made and "--neighbor-vm" in made
        assert "vm names" in made
    assert run("complete").out.rstrip().endswith("complete -F _vmqos vmqos")


def asked_by_bash(typed: str, run: Run, word: str = "") -> str:
    """What bash asks the program for, for the next word, or what it offers."""
    # bash-completion's own functions are not here to be had: one tells the words that were typed, one offers files.
    script = f"""
        _get_comp_words_by_ref() {{
          words=({typed} '{word}'); cword=$((${{#words[@]}} - 1)); prev=${{words[cword-1]}}; cur='{word}'
        }}
        _filedir() {{ COMPREPLY=(FILES); }}
        vmqos() {{ echo "$*"; }}
        command() {{ "$@"; }}
        {run("complete").out}
        _vmqos
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.removesuffix("\n")


def asked_by_zsh(typed: str, run: Run, word: str = "") -> str:
    """The same of zsh."""
    script = f"""
        words=({typed} '{word}'); CURRENT=$#words; PREFIX={word}
        _files() {{ print FILES }}
        vmqos() {{ echo "$*"; }}
        command() {{ "$@"; }}
        compadd() {{ while [[ $1 != -- ]]; do shift; done; shift; (( ! $# )) || print -rl -- "$@" }}
        {run("complete", "--shell", "zsh").out}
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
        ("vmqos --socket", "FILES"),
        ("vmqos --no-color --log-file", "FILES"),
        ("vmqos record -o", "FILES"),
        ("vmqos replay", "FILES"),
        ("vmqos flavor set", "vm names --flavors"),
        ("vmqos flavor set c2.cache --cache-ways", ""),
        ("vmqos lock create", ""),
        ("vmqos top --delay", ""),
        ("vmqos vm list kept", ""),
    ],
)
def test_a_shell_asks_for_the_vms_where_one_is_to_be_named(typed: str, asked: str, run: Run) -> None:
    in_bash = asked_by_bash(typed, run)
    assert in_bash == (f"{asked} --bash=" if "vm names" in asked else asked)
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
        ("vmqos flavor set c2.cache --policy", "exclusive shared"),
        ("vmqos vm", "list names show"),
        ("vmqos --no-color --socket /run/a vm", "list names show"),
        ("vmqos vm unheard-of", ""),
        ("vmqos top --format csv", "vm names"),
    ],
)
def test_a_word_of_an_option_that_takes_one_of_some_is_completed(typed: str, words: str, run: Run) -> None:
    assert asked_by_bash(typed, run).split() == [*words.split(), *(["--bash="] if words == "vm names" else [])]
    assert asked_by_zsh(typed, run).split() == words.split()


def test_an_extra_spec_is_completed_key_by_key_and_word_by_word(run: Run) -> None:
    # bash replaces only what follows the last colon or equals sign.
    offered = asked_by_bash("vmqos plan --flavor-spec", run, "hw:cache_")
    assert offered.split() == [
        "cache_ways=", "cache_policy=exclusive", "cache_policy=shared", "cache_code_ways=", "cache_data_ways=",
        "cache_vcpus=",
    ]  # fmt: skip
    assert asked_by_bash("vmqos plan --flavor-spec", run, "hw:cache_policy=s") == "shared"
    offered = asked_by_zsh("vmqos plan --flavor-spec", run)
    assert {"hw:cache_ways=", "hw:cache_policy=shared", "hw:mem_bandwidth_percent="} <= set(offered.split())


@pytest.mark.parametrize(
    ("typed", "are_offered"),
    [
        ("vmqos", True),
        ("vmqos --no-color", True),
        ("vmqos --socket /run/a", True),
        ("vmqos --socket", False),
        ("vmqos vm list", False),
        ("vmqos unheard-of", False),
    ],
)
def test_options_that_all_commands_share_are_completed_before_the_command(
    typed: str, are_offered: bool, run: Run
) -> None:
    for asked in (asked_by_bash(typed, run, "--"), asked_by_zsh(typed, run, "--")):
        assert ({"--socket", "--config-file", "--no-color", "--version", "--help"} <= set(asked.split())) == are_offered


def test_another_name_of_the_program_is_completed_too(run: Run) -> None:
    assert run("complete", "--name", "my-vmqos").out.rstrip().endswith("complete -F _my_vmqos my-vmqos")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_itself_finds_no_fault_in_it(shell: str, run: Run, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(run("complete", "--shell", shell).out)
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
