# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.local_api.fake_agent import FakeAgent
from vmqos.cli import app
from vmqos.version import version

COMMANDS = [
    "bench noisy-neighbor",
    "cache show",
    "capabilities",
    "doctor",
    "events",
    "flavor check",
    "flavor set",
    "flavor unset",
    "gnocchi-resources merge",
    "lock create",
    "lock list",
    "lock remove",
    "lock show",
    "neighbours",
    "placement audit",
    "placement heal",
    "placement withdraw",
    "plan",
    "record",
    "replay",
    "reset",
    "simulate",
    "size",
    "top",
    "vm list",
    "vm names",
    "vm show",
]


def test_every_command_is_an_entry_point_that_loads() -> None:
    found = {point.name.replace("_", " "): point.load() for point in entry_points(group=app.NAMESPACE)}
    assert sorted(found) == COMMANDS


@pytest.mark.parametrize("arguments", [(), ("--help",), ("help",), ("--no-color",)])
def test_help_lists_every_command_with_a_line(run: Run, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert ran.status == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w.{{20,}}$", ran.out, re.MULTILINE), command
    assert "(cliff)" not in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_in_paragraphs(run: Run, command: str) -> None:
    for arguments in ((*command.split(), "--help"), ("help", *command.split())):
        ran = run(*arguments)
        assert ran.status == 0
        assert f"usage: vmqos {command}" in ran.out
        assert ran.out.count("\n\n") > 3
        assert max(map(len, ran.out.splitlines())) <= 100


def test_the_version_is_the_packages(run: Run) -> None:
    ran = run("--version")
    assert ran.status == 0
    assert ran.out == f"vmqos {version()}\n"


def test_shell_completion_knows_the_commands(run: Run) -> None:
    ran = run("complete")
    assert ran.status == 0
    words = (
        "bench cache capabilities complete doctor events flavor gnocchi-resources help lock neighbours placement plan "
        "record replay reset simulate size top vm"
    )
    assert f"'') kind=choices choices='{words}' ;;" in ran.out
    assert "'lock') kind=choices choices='create list remove show' ;;" in ran.out
    assert "'vm') kind=choices choices='list names show' ;;" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vm",), "there is no command 'vm'; did you mean: vm list, vm names, vm show? See 'vmqos --help'"),
        (("cahce", "show"), "there is no command 'cahce show'; did you mean: cache show"),
        (("--colour", "vm", "list"), "unknown option --colour; see 'vmqos --help'"),
        (("vm", "frobnicate"), "did you mean: vm list, vm names, vm show?"),
        (("list",), "there is no command 'list'; did you mean: lock list, vm list? See 'vmqos --help'"),
        (("neighbors",), "did you mean: neighbours?"),
        (("flavour", "set"), "did you mean: flavor check, flavor set, flavor unset?"),
        (("version",), "there is no command 'version'; 'vmqos --help' lists them all"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_status_2(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_an_unknown_option_of_a_command_is_wrong_usage(run: Run) -> None:
    assert run("vm", "list", "--frobnicate").status == 2


def test_an_agent_that_does_not_run_is_one_line_on_stderr_and_status_1(run: Run, socket: str) -> None:
    ran = run("vm", "list")
    assert (ran.status, ran.out) == (1, "")
    named = f"no program answers on {socket} (from VMQOS_SOCKET);"
    assert ran.err.startswith(f"vmqos: vmqos-agent does not run: {named}")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("option", [(), ("--debug",)])
def test_what_steers_a_terminal_is_spelled_out_in_an_error(run: Run, option: tuple[str, ...]) -> None:
    result = run(*option, "--socket", "/nowhere\x1b]0;x\x07\r/agent.sock", "vm", "list")
    assert result.status == 1
    assert r"/nowhere\x1b]0;x\x07\r/agent.sock" in result.err
    assert result.err.replace("\n", "").isprintable()


def test_debug_shows_where_it_went_wrong(run: Run) -> None:
    assert "Traceback" in run("--debug", "vm", "list").err
    assert "Traceback" not in run("vm", "list").err


def test_global_options_may_stand_behind_the_command(agent: FakeAgent, run: Run, socket: str) -> None:
    os.environ["VMQOS_SOCKET"] = "/nowhere"
    assert run("vm", "list", "--socket", socket).status == 0


def run_in_terminal(*arguments: str, columns: int = 80, **environment: str) -> str:
    """What a real terminal of that width is sent."""
    leader, follower = pty.openpty()
    code = "import sys; from vmqos.cli.main import main; sys.exit(main())"
    settings = os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"} | environment
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdout=follower, stderr=follower, stdin=follower, env=settings) as process:
        os.close(follower)
        seen = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # EIO: the last writer has closed the terminal
                break
            seen += part
        assert process.wait() == 0
    os.close(leader)
    return seen.decode()


def test_a_terminal_gets_colours_and_lines_that_fit(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    for arguments in (("cache", "show"), ("vm", "list")):
        shown = run_in_terminal(*arguments)
        assert "\x1b[" in shown
        text = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 80


def test_a_dumb_terminal_gets_ascii(agent: FakeAgent) -> None:
    shown = run_in_terminal("cache", "show", TERM="dumb")
    assert "\x1b" not in shown
    assert shown.isascii()


def test_a_reader_that_leaves_early_is_no_error(agent: FakeAgent) -> None:
    code = "import sys; from vmqos.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "vm", "list", "-f", "json"]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert ended.returncode in (0, 141)
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["vm list", "top", "cache show", "vm list -f json", "vm show web-1"])
def test_each_way_of_printing_says_by_its_status_that_the_pipe_was_closed(agent: FakeAgent, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "import sys; from vmqos.cli.main import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", code, *command.split()], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", ["--help", "--version", "help", "help lock create", "vm list --help", "vm list", "vm show web-1"]
)
def test_each_way_of_printing_fails_in_one_line_where_nothing_can_be_written(
    agent: FakeAgent, command: str, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    code = "import sys; from vmqos.cli.main import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", code, *command.split()], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, b"vmqos: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("command", "status"), [("vm list", 0), ("vm list -f json", 0), ("vm show nobody", 1), ("size web-1", 1)]
)
def test_a_command_does_its_work_though_nobody_hears_of_it(
    agent: FakeAgent, closed: str, command: str, status: int
) -> None:
    code = "import sys; from vmqos.cli.main import main; sys.exit(main())"
    line = f'exec "$0" -c "$1" {command} {closed}'
    ended = subprocess.run(["sh", "-c", line, sys.executable, code], capture_output=True, check=False)
    assert ended.returncode == status
    assert b"NoneType" not in ended.stderr


@pytest.mark.parametrize(
    "command",
    [
        "vm list -c nothing",
        "neighbours --confirm",
        "neighbours --culprit web-1",
        "simulate",
        "simulate /tmp/x --profile zx81",
        "bench noisy-neighbor --vm web-1",
        "help nothing",
        "help nothing at all",
    ],
)
def test_wrong_usage_has_its_own_status_whoever_finds_it(agent: FakeAgent, run: Run, command: str) -> None:
    ran = run(*command.split())
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize("words", ["vm", "vm list", "lock"])
def test_help_takes_the_beginning_of_a_command(run: Run, words: str) -> None:
    assert run("help", *words.split()).status == 0


def test_a_log_file_that_can_not_be_written_is_named(agent: FakeAgent, run: Run) -> None:
    ran = run("--log-file", "/no/such/folder/log", "vm", "list")
    assert (ran.status, ran.out, ran.err) == (
        1,
        "",
        "vmqos: can't use the log file /no/such/folder/log: No such file or directory\n",
    )


def test_an_interrupt_while_commands_are_looked_for_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "CommandManager", interrupt)
    ran = run("vm", "list")
    assert (ran.status, ran.out, ran.err) == (130, "", "")


INTERRUPTED = """
import os, signal, sys

class Interrupt:
    @staticmethod
    def find_spec(name, *_):
        if name.partition(".")[0] == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
from vmqos.cli.main import main
sys.exit(main(["vm", "list"]))
"""


@pytest.mark.parametrize("library", ["argparse", "cliff", "logging"])
def test_an_interrupt_while_libraries_are_loaded_is_no_traceback(library: str) -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED, library], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
