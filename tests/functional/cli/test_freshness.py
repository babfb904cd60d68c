# SPDX-License-Identifier: Apache-2.0
"""What the commands say while the agent answers and can't look any more."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.functional.cli.test_commands import WAYS_2, settled, vmqos, while_fresh
from tests.functional.conftest import MakeVm, WaitFor
from tools.lab.agent import Agent
from tools.lab.simulator import Simulator


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Have another process hold resctrl's lock while the block runs."""
    command = ["flock", "--exclusive", str(root), "sh", "-c", "echo held; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.communicate()


def test_what_is_old_is_printed_with_a_warning_and_a_status_of_its_own(
    agent: Agent, simulator: Simulator, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm = make_vm(WAYS_2, display_name="web-1")
    wait_for(lambda: settled(agent, vm.uuid), "the VM being settled")
    commands = (("vm", "list"), ("cache", "show"), ("top", "--once"), ("plan", "--flavor-spec", "hw:cache_ways=2"))
    for command in commands:
        done = while_fresh(lambda command=command: vmqos(agent, *command))  # type: ignore[misc]
        assert (done.returncode, done.stderr) == (0, "")
    with locked(simulator.root):
        wait_for(lambda: "pass" in agent.get("/v1/health")["stale"], "the agent seeing that it has not looked")
        for command in commands:
            done = vmqos(agent, *command)
            assert done.returncode == 3, command
            assert "web-1" in done.stdout or command[0] == "plan"
            assert "ended a pass without an error" in " ".join((done.stdout + done.stderr).split())
        shown = json.loads(vmqos(agent, "top", "--once", "-f", "json").stdout)
        assert "pass" in shown["stale"]
        assert [one["uuid"] for one in shown["vms"]] == [vm.uuid]
    wait_for(lambda: vmqos(agent, "top", "--once").returncode == 0, "the agent looking again")
    assert while_fresh(lambda: vmqos(agent, "vm", "list")).stderr == ""
