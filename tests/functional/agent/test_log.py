# SPDX-License-Identifier: Apache-2.0
"""What takes the agent's log takes nothing any more: promises are kept all the same."""

from __future__ import annotations

import fcntl
import os
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
from tools.lab.program import Program
from tools.lab.workspace import CHECKOUT


class FullPipe:
    """A pipe that takes no byte more until it is read."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        fcntl.fcntl(self._writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self._writing, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(self._writing, b".")
        os.set_blocking(self._writing, True)

    def launch(self, module: str, arguments: Sequence[str], log: Path) -> Program:
        """Start a program that writes into the pipe (:data:`tools.lab.program.Launch`), and is the only one to."""
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=self._writing,
            stderr=self._writing,
            start_new_session=True,
        )
        os.close(self._writing)
        return process

    def read(self) -> bytes:
        """All that is written until the program ends."""
        said = b""
        while found := os.read(self._reading, 65536):
            said += found
        return said

    def close(self) -> None:
        os.close(self._reading)


@pytest.fixture
def full() -> Iterator[FullPipe]:
    made = FullPipe()
    yield made
    made.close()


@pytest.fixture
def pace(pace: Pace, full: FullPipe) -> Pace:
    """An agent whose output is not taken."""
    return replace(pace, launch=full.launch)


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
