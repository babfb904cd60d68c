# SPDX-License-Identifier: Apache-2.0
"""What takes the agent's log takes nothing any more: promises are kept all the same."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.agent.conftest import WaitForVm
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2
from tests.functional.conftest import MakeVm, Pace, WaitFor
from tools.lab.agent import Agent
from tools.lab.full_pipe import FullPipe
from tools.lab.program import Launch, Program
from tools.lab.workspace import CHECKOUT


def launcher_into(full: FullPipe) -> Launch:
    """Starts one program, which writes into the pipe, and is the only one to."""

    def launch(module: str, arguments: Sequence[str], log: Path) -> Program:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=full.writing,
            stderr=full.writing,
            start_new_session=True,
        )
        full.give_away()
        return process

    return launch


@pytest.fixture
def full() -> Iterator[FullPipe]:
    made = FullPipe()
    yield made
    made.close()


@pytest.fixture
def pace(pace: Pace, full: FullPipe) -> Pace:
    """An agent whose output is not taken."""
    return replace(pace, launch=launcher_into(full))


def test_promises_are_kept_while_nothing_takes_the_log_and_the_lines_come_later(
    agent: Agent, full: FullPipe, make_vm: MakeVm, wait_for: WaitFor, wait_for_vm: WaitForVm
) -> None:
    first = make_vm(EXCLUSIVE_2)
    wait_for_vm(first, "kept")
    agent.reload()
    second = make_vm(EXCLUSIVE_2)
    wait_for_vm(second, "kept")
    first.domain.destroy()
    wait_for(lambda: [vm["uuid"] for vm in agent.get("/v1/vms")["vms"]] == [second.uuid], "its end being seen")
    said = list[bytes]()
    reader = threading.Thread(target=lambda: said.append(full.read()))
    reader.start()
    assert agent.stop() == 0
    reader.join()
    text = said[0].decode()
    assert f"create the control group vmqos.{first.uuid}" in text and "stopped; every VM keeps its group" in text


def test_an_agent_ends_although_nothing_takes_its_log(agent: Agent, make_vm: MakeVm, wait_for_vm: WaitForVm) -> None:
    wait_for_vm(make_vm(EXCLUSIVE_2), "kept")
    assert agent.stop() == 0


def test_an_agent_with_a_mistake_in_its_configuration_ends_although_nothing_takes_its_log(
    full: FullPipe, tmp_path: Path
) -> None:
    conf = tmp_path / "vmqos.conf"
    conf.write_text(f"[resctrl]\npath = {tmp_path}/none\nmisspelt = 1\n")
    failed = launcher_into(full)("vmqos.agent.main", ["--config-file", str(conf), "--once"], tmp_path / "log")
    try:
        assert failed.wait(60) == 1
    finally:
        failed.kill()
