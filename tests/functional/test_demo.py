# SPDX-License-Identifier: Apache-2.0
"""``tools/demo``, without the installing."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.conftest import WaitFor
from tools.lab.workspace import CHECKOUT, cgroups

DEMO = [sys.executable, "-m", "tools.lab.demo"]


@pytest.fixture
def started() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The demonstration, up and waiting for Ctrl-C; and what it has said."""
    process = subprocess.Popen(DEMO, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    said = []
    for line in process.stdout:
        said.append(line)
        if "tail -f" in line:
            break
    else:
        pytest.fail(f"the demonstration ended with status {process.wait()}:\n{''.join(said)}", pytrace=False)
    yield process, "".join(said)
    process.kill()
    process.stdout.close()
    process.wait()


@pytest.fixture
def demo(started: tuple[subprocess.Popen[str], str]) -> subprocess.Popen[str]:
    """The demonstration, up and waiting for Ctrl-C."""
    return started[0]


@pytest.mark.parametrize("profile", ["cascade-lake", "milan", "minimal"])
def test_it_checks_itself_and_says_who_owns_which_ways(profile: str) -> None:
    ended = subprocess.run([*DEMO, "--once", "--profile", profile], cwd=CHECKOUT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "WRONG" not in ended.stdout
    assert "database: promised 4 ways a cache" in ended.stdout


def test_an_unknown_profile_is_refused_with_those_there_are() -> None:
    ended = subprocess.run([*DEMO, "--once", "--profile", "nonesuch"], cwd=CHECKOUT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "cascade-lake" in ended.stderr


def test_the_commands_that_it_offers_work_where_they_are_typed(
    started: tuple[subprocess.Popen[str], str], wait_for: WaitFor
) -> None:
    offered = [line.strip() for line in started[1].splitlines() if line.startswith("  ")]
    commands = [line for line in offered if line.startswith("vmqos ") and line != "vmqos top"]
    assert len(commands) >= 5
    (alias,) = [line for line in offered if line.startswith("alias vmqos=")]
    script = "\n".join(["shopt -s expand_aliases", alias, *(f"{command} || exit" for command in commands)])
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert ran.returncode in (0, 3), ran.stderr
    (kill,) = [line for line in offered if "kill -9" in line]
    (root,) = {Path(word).parent for line in offered if "cat " in line for word in line.split()[-2:-1]}
    before = _default_ways(root)
    subprocess.run(["sh", "-c", kill], check=True)
    wait_for(lambda: _default_ways(root) == before + 2, "its ways coming back")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_leaves_nothing_behind(demo: subprocess.Popen[str], number: signal.Signals, wait_for: WaitFor) -> None:
    (workspace,) = {path for path in Path("/tmp").glob("vmqos-lab-*") if _owner(path) == demo.pid}
    pids = [int(path.read_text()) for path in (workspace / "run" / "qemu").glob("instance-*.pid")]
    assert len(pids) == 4
    demo.send_signal(number)
    wait_for(lambda: not workspace.exists(), "the workspace's removal")
    assert demo.wait(120) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    assert not any(_mentions(pid, workspace.name) for pid in pids)
    assert workspace.name not in Path("/proc/self/mountinfo").read_text(errors="replace")
    assert not [found for found in cgroups() if found.name == workspace.name]
    assert not list(Path("/run/vmqos").glob(f"*{workspace.name}*"))


def _default_ways(root: Path) -> int:
    """How many ways of L3 cache 0 the default group has."""
    found = re.search(r"L3:0=([0-9a-f]+)", (root / "schemata").read_text())
    assert found
    return int(found[1], 16).bit_count()


def _owner(workspace: Path) -> int:
    try:
        return int((workspace / "owner").read_text().split()[0])
    except (FileNotFoundError, IndexError):
        return 0


def _mentions(pid: int, name: str) -> bool:
    try:
        return name in Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")
    except OSError:
        return False
