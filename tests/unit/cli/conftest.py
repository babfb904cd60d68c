# SPDX-License-Identifier: Apache-2.0
"""Running commands in this process, against an agent on a socket of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.local_api.fake_agent import FakeAgent, serving
from vmqos.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "agent.sock")
    monkeypatch.setenv("VMQOS_SOCKET", path)
    for variable in ("NO_COLOR", "FORCE_COLOR", "CLIFF_FIT_WIDTH", "CLIFF_MAX_TERM_WIDTH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    return path


@pytest.fixture
def agent(socket: str) -> Iterator[FakeAgent]:
    application = FakeAgent()
    with serving(application, socket):
        yield application


@pytest.fixture
def run(socket: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level

    def run_command(*arguments: str) -> Ran:
        capsys.readouterr()
        try:
            status = main.main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            root.handlers[:], root.level = before, level
            # Other tests in this process read what the agent writes of libvirt.
            logging.getLogger("vmqos.hypervisor").setLevel(logging.NOTSET)
        return Ran(status, *capsys.readouterr())

    yield run_command
