# SPDX-License-Identifier: Apache-2.0
"""Completion of VMs in a real bash and a real zsh, asked from a real agent, with names that mean harm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.cli.glass import Glass, running
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.vms import Flavor
from tools.lab.workspace import CHECKOUT

CANARY = "canary"
HOSTILE = {
    "ja 1": "ja 1",
    "kb": f"kb'\"$(touch {CANARY})",
    "lc": f"lc`touch {CANARY}`; touch {CANARY} & #",
    "md:1=2@3": "md:1=2@3",
    "ne": f"ne|{{a,b}}*~!!$HOME\\ >{CANARY}",
}
"""What is typed, and the name that it becomes. No name begins as a UUID can."""
UNSEEN = ("of\nnew; touch canary\n", "pg\u202e\u2066evil", "--hh")
"""Names that are offered to no shell."""

# Programs of the test's own: the real command for the completion, and a note of the arguments for all else. On a busy
# machine the agent may take longer than a key press should, and then nothing would be completed.
PROGRAM = """\
#!{python}
import json, sys
if sys.argv[1:3] == ["vm", "names"]:
    from vmqos.cli import main
    from vmqos.cli.vm import names
    names.TIMEOUT = 15.0
    sys.exit(main.main())
with open({said!r}, "a") as said:
    said.write(json.dumps(sys.argv[1:]) + "\\n")
"""
BEGIN = {
    "bash": "PS1='ready> '; set -H; . /usr/share/bash-completion/bash_completion; . {file}; "
    "bind 'set enable-bracketed-paste off'",
    "zsh": "PS1='ready> '; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; . {file}; "
    "compdef _vmqos vmqos",
}

Complete = Callable[[str], list[str]]


@pytest.fixture(params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path, agent: Agent) -> Path:
    """A directory with a program vmqos, and with its completion for each shell."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vmqos"
    program.write_text(PROGRAM.format(python=sys.executable, said=str(tmp_path / "said")))
    program.chmod(0o755)
    for name in ("bash", "zsh"):
        made = subprocess.run(
            [sys.executable, "-m", "vmqos.cli.main", "complete", "--shell", name],
            cwd=CHECKOUT,
            text=True,
            capture_output=True,
            check=True,
        )
        # Sourced, the file of zsh defines its functions; its last line is for zsh's own loader.
        (tmp_path / name).write_text(made.stdout.removesuffix('_vmqos "$@"\n'))
    return tmp_path


@pytest.fixture
def terminal(shell: str, home: Path, agent: Agent, wait_for: WaitFor) -> Iterator[Glass]:
    """An interactive shell that is ready to complete."""
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "HOME": str(home),
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(CHECKOUT),
        "VMQOS_SOCKET": str(agent.socket),
    }
    arguments = ["--norc", "--noprofile", "-i"] if shell == "bash" else ["-f", "-i"]
    with running([str(shutil.which(shell)), *arguments], environment, 50, 200) as glass:
        glass.type(f"cd {home}; {BEGIN[shell].format(file=home / shell)}; touch begun\n")
        wait_for(lambda: (home / "begun").exists(), f"{shell} being ready")
        yield glass


@pytest.fixture
def complete(terminal: Glass, home: Path, wait_for: WaitFor) -> Complete:
    """Type words, have the last one completed, run it, and tell what the program was given."""
    said = home / "said"

    def complete_it(typed: str) -> list[str]:
        said.unlink(missing_ok=True)
        # The shell reads the line's end only when the completion is done.
        terminal.type(f"{typed}\t\n")
        wait_for(lambda: said.exists() and said.read_text().endswith("\n"), f"{typed!r} being run")
        (line,) = said.read_text().splitlines()
        return list(json.loads(line))

    return complete_it


def test_a_hostile_name_becomes_one_word_and_nothing_is_executed(
    shell: str, complete: Complete, terminal: Glass, home: Path, agent: Agent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    made = [make_vm({}, display_name=name) for name in (*HOSTILE.values(), *UNSEEN)]
    wait_for(lambda: len(agent.get("/v1/vms")["vms"]) == len(made), "the agent knowing the VMs")
    for name in HOSTILE.values():
        assert complete(f"vmqos vm show {name[:2]}") == ["vm", "show", name]
    assert complete("vmqos --no-color vm show ja") == ["--no-color", "vm", "show", "ja 1"]
    assert complete("vmqos top -d 5 md:1=") == ["top", "-d", "5", "md:1=2@3"]
    assert complete("vmqos bench noisy-neighbor --neighbor-vm ja") == [
        "bench", "noisy-neighbor", "--neighbor-vm", "ja 1"
    ]  # fmt: skip
    assert complete("vmqos vm show 'ja") == ["vm", "show", "ja 1"]
    assert complete('vmqos vm show "md') == ["vm", "show", "md:1=2@3"]
    # A UUID, and where only a UUID will do, no name.
    uuid = made[0].uuid
    assert complete(f"vmqos vm show {uuid[:13]}") == ["vm", "show", uuid]
    assert complete(f"vmqos lock create --vm {uuid[:13]}") == ["lock", "create", "--vm", uuid]
    assert complete("vmqos lock create --vm ja") == ["lock", "create", "--vm", "ja"]
    for name in ("of", "pg", "--hh"):
        assert complete(f"vmqos vm show {name}") == ["vm", "show", name]
    # All names are listed, and still none of them does anything.
    before = len(terminal.said)
    terminal.type("vmqos vm show \t\t\t")
    wait_for(lambda: "md:1=2@3" in terminal.said[before:].replace("\\", ""), "the list of names")
    assert "\u202e" not in terminal.said and "new; touch" not in terminal.said
    assert not (home / CANARY).exists()


def test_other_words_are_completed_as_ever(complete: Complete) -> None:
    assert complete("vmqos vm sh") == ["vm", "show"]
    assert complete("vmqos vm list --wat") == ["vm", "list", "--watch"]


def test_files_options_and_extra_specs_are_completed_where_they_belong(complete: Complete, home: Path) -> None:
    (home / "a-file").touch()
    assert complete("vmqos --socket a-fi") == ["--socket", "a-file"]
    assert complete("vmqos --no-color vm sh") == ["--no-color", "vm", "show"]
    assert complete("vmqos plan --flavor-spec hw:cache_w") == ["plan", "--flavor-spec", "hw:cache_ways="]
    assert complete("vmqos plan --flavor-spec hw:cache_policy=s") == ["plan", "--flavor-spec", "hw:cache_policy=shared"]
    assert complete("vmqos flavor set m1 --policy exc") == ["flavor", "set", "m1", "--policy", "exclusive"]
    assert complete("vmqos simulate --profile casc") == ["simulate", "--profile", "cascade-lake"]
    # No file is offered where none belongs.
    assert complete("vmqos flavor set a-fi") == ["flavor", "set", "a-fi"]
    assert complete("vmqos flavor set m1 --cache-ways a-fi") == ["flavor", "set", "m1", "--cache-ways", "a-fi"]


def test_the_states_of_promises_are_completed_one_after_the_other(complete: Complete) -> None:
    assert complete("vmqos vm list --state pen") == ["vm", "list", "--state", "pending"]
    assert complete("vmqos vm list --state pending deg") == ["vm", "list", "--state", "pending", "degraded"]
    assert complete("vmqos vm list --state pending --lo") == ["vm", "list", "--state", "pending", "--long"]


def test_the_flavor_of_a_running_vm_is_completed(
    complete: Complete, home: Path, agent: Agent, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    hostile = f"gb'\"$(touch {CANARY})"
    for name in ("c2.cache2", hostile):
        make_vm(flavor=Flavor(name), display_name="c2.not-a-flavor")
    wait_for(lambda: len(agent.get("/v1/vms")["vms"]) == 2, "the agent knowing the VMs")
    assert complete("vmqos size --flavor c2") == ["size", "--flavor", "c2.cache2"]
    assert complete("vmqos flavor set c2") == ["flavor", "set", "c2.cache2"]
    assert complete("vmqos vm list --long --flavor c2") == ["vm", "list", "--long", "--flavor", "c2.cache2"]
    assert complete("vmqos size --flavor gb") == ["size", "--flavor", hostile]
    assert not (home / CANARY).exists()


def test_it_is_silent_where_the_agent_is_away(complete: Complete, terminal: Glass, agent: Agent) -> None:
    agent.stop()
    assert complete("vmqos vm show we") == ["vm", "show", "we"]
    assert "does not run" not in terminal.said and "Traceback" not in terminal.said


def test_it_is_silent_where_the_agent_hangs(
    complete: Complete, terminal: Glass, agent: Agent, wait_for: WaitFor
) -> None:
    assert agent.pid is not None
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        assert complete("vmqos vm show we") == ["vm", "show", "we"]
    finally:
        os.kill(agent.pid, signal.SIGCONT)
    assert "Traceback" not in terminal.said and "answer" not in terminal.said
