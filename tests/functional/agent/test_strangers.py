# SPDX-License-Identifier: Apache-2.0
"""A user of the host who means ill opens and locks whatever he can, and no promise suffers."""

from __future__ import annotations

import grp
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.agent.conftest import wait_until_told
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2
from tests.functional.conftest import MakeAgent, MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator
from vmqos.host.single_instance import EARLIER_SUFFIX, LOCK_DIRECTORY, SUFFIX

STRANGER = 65534
READERS = "daemon"
"""A group of every system, in the place of ``resctrl``."""

LOCKS_ALL = """
import fcntl, os, sys, threading
os.setgroups([]); os.setgid(65534); os.setuid(65534)
opened = []
for path in sys.argv[1:]:
    try:
        opened.append(open(path))
    except OSError as error:
        print(type(error).__name__, flush=True)
    else:
        threading.Thread(target=fcntl.flock, args=(opened[-1], fcntl.LOCK_SH), daemon=True).start()
        print("opened", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock_file(simulator: Simulator) -> Iterator[Path]:
    """The lock file of this resctrl's agent."""
    name = str(simulator.root).strip("/").replace("/", "-")
    yield Path(LOCK_DIRECTORY, f"agent-{name}{SUFFIX}")
    Path(LOCK_DIRECTORY, f"agent-{name}{EARLIER_SUFFIX}").unlink(missing_ok=True)


@pytest.fixture
def stranger() -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of the stranger, which end with the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.communicate(timeout=60)


def lock(stranger: list[subprocess.Popen[str]], path: Path) -> str:
    """Have the stranger open a file and ask for a lock on it for ever; ``opened``, or the error's name."""
    command = [sys.executable, "-c", LOCKS_ALL, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stranger.append(process)
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_no_restart_is_refused_for_a_strangers_lock(
    agent: Agent, lock_file: Path, stranger: list[subprocess.Popen[str]]
) -> None:
    assert lock_file.exists()
    assert lock(stranger, lock_file) == "PermissionError"
    for _ in range(3):
        agent.kill()
        agent.start()


def test_nor_for_one_on_the_file_of_an_earlier_version(
    make_agent: MakeAgent, lock_file: Path, stranger: list[subprocess.Popen[str]]
) -> None:
    earlier = lock_file.with_suffix(EARLIER_SUFFIX)
    earlier.parent.mkdir(exist_ok=True)
    earlier.write_text("4711\n")
    earlier.chmod(0o644)
    assert lock(stranger, earlier) == "opened"
    make_agent().start()


def test_the_agent_closes_resctrl_to_all_but_its_readers_and_does_so_again_after_a_mount(
    make_agent: MakeAgent,
    simulator: Simulator,
    make_vm: MakeVm,
    wait_for: WaitFor,
    stranger: list[subprocess.Popen[str]],
) -> None:
    simulator.root.parent.chmod(0o755)
    before = subprocess.run(as_user(STRANGER, "flock", "--nonblock", str(simulator.root), "true"), check=False)
    assert before.returncode == 0, "to begin with, everybody can lock it"
    agent = make_agent({"resctrl": {"readers_group": READERS}})
    agent.start()
    vm = make_vm(EXCLUSIVE_2)
    for _ in range(2):
        wait_for(lambda: mode(simulator.root) == 0o750, "the agent's closing resctrl")
        # What the agent says may be of the mount before.
        wait_until_told(agent, wait_for, vm, "kept", whole=lambda told: (simulator.root / told["group"]).is_dir())
        assert lock(stranger, simulator.root) == "PermissionError"
        assert simulator.root.stat().st_gid == grp.getgrnam(READERS).gr_gid
        read = subprocess.run(
            as_user(grp.getgrnam(READERS).gr_gid, "cat", f"{simulator.root}/vmqos.{vm.uuid}/schemata"),
            capture_output=True,
            text=True,
            check=True,
        )
        assert "L3:" in read.stdout
        simulator.stop()
        simulator.start()


def test_without_such_a_group_the_permissions_are_left_alone(
    make_agent: MakeAgent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    agent = make_agent({"resctrl": {"readers_group": "no-such-group"}})
    agent.start()
    wait_until_told(agent, wait_for, make_vm(EXCLUSIVE_2), "kept")
    assert mode(simulator.root) == 0o555


def as_user(gid: int, *command: str) -> list[str]:
    """A command of a user without any right, who is in one group."""
    return ["setpriv", f"--reuid={STRANGER}", f"--regid={gid}", "--clear-groups", *command]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
