# SPDX-License-Identifier: Apache-2.0
"""Ways for code and for data on the kernel's own resctrl: the functional tests of the same name, and the registers."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from tests.functional.agent import test_cdp as functional
from tests.functional.agent.conftest import WaitForVm, wait_until_told
from tests.functional.agent.test_lifecycle import group
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeVm, WaitFor
from tests.kernel.agent import groups
from tests.kernel.agent.kernel_resctrl import KernelResctrl
from tests.kernel.agent.registers import L3Registers
from tools.lab.agent import Agent
from tools.lab.vms import RunningVm

pytestmark = [pytest.mark.guest(pairs=("cascade-lake-6.12",)), pytest.mark.feature("cdp")]

CDP = pytest.mark.parametrize("resctrl", [("cdp",)], indirect=True)


@pytest.mark.guest(machines=("cascade-lake", "broadwell", "sapphire-rapids", "milan", "genoa"))
@CDP
def test_code_and_data_fill_ways_of_their_own_that_nobody_else_fills(
    agent: Agent,
    resctrl: KernelResctrl,
    registers: L3Registers,
    tree: Tree,
    make_vm: MakeVm,
    wait_for: WaitFor,
    wait_for_vm: WaitForVm,
) -> None:
    made = list[RunningVm]()

    def make(*specs: Any, **fields: Any) -> RunningVm:
        made.append(make_vm(*specs, **fields))
        return made[-1]

    # While one gets its ways, those of another that is kept may move, step by step: the kernel is asked after the last.
    told = partial(wait_until_told, agent, wait_for)
    functional.test_code_and_data_fill_ways_of_their_own_that_nobody_else_fills(agent, tree, make, told)
    for vm in made:
        wait_for_vm(vm, "kept")
    for name in ("", *tree.groups()):
        written = {cache: code | data for cache, (code, data) in functional.parts(tree, name).items()}
        assert registers.masks(groups.closid(resctrl.root, name)) == written


@CDP
def test_an_agent_that_starts_anew_changes_nothing(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    functional.test_an_agent_that_starts_anew_changes_nothing(agent, tree, make_vm, wait_for_vm)


@pytest.mark.feature("cdp")
@pytest.mark.feature("percent")
@CDP
def test_bandwidth_and_code_and_data_ways_are_one_promise(
    agent: Agent, tree: Tree, make_vm: MakeVm, wait_for_vm: WaitForVm
) -> None:
    vm = make_vm({**functional.CODE_AND_DATA, "hw:mem_bandwidth_percent": "50"})
    told = wait_for_vm(vm, "kept", group=group(vm))
    assert set(told["bandwidth"].values()) == {50} and "50" in tree.values("MB", group(vm)).values()


@pytest.mark.feature("cdp", kept=False)
def test_without_cdp_a_vm_waits_until_the_doctors_command_was_run(
    agent: Agent,
    resctrl: KernelResctrl,
    tree: Tree,
    make_vm: MakeVm,
    wait_for: WaitFor,
    wait_for_vm: WaitForVm,
) -> None:
    vm = make_vm(functional.CODE_AND_DATA)
    wait_for_vm(vm, "pending", group="", reason="'sudo vmqos doctor' tells how")
    wait_for(lambda: agent.get("/v1/health")["ages"]["counters"] is not None, "the agent having opened the counters")
    # The agent runs, and keeps its counters open.
    assert subprocess.run(["umount", resctrl.root], capture_output=True, check=False).returncode != 0
    subprocess.run(doctors_command(agent, "Code and data apart (cdp)"), shell=True, check=True, timeout=120)
    wait_for_vm(vm, "kept", group=group(vm))
    assert (resctrl.root / "info/L3CODE").exists()


def doctors_command(agent: Agent, check: str) -> str:
    """What the doctor says that is to be done."""
    command = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(agent.config_file), "doctor", "-f", "json"]
    findings = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    (found,) = (finding for finding in findings if finding["title"] == check)
    return str(found["command"])
