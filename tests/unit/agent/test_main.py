# SPDX-License-Identifier: Apache-2.0
"""Tests of vmqos.agent.main, each with a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.lab.full_pipe import FullPipe

PATIENCE = 60.0
"""Seconds until something must have happened that takes one on an idle machine."""

PROGRAM = """
import contextlib, pathlib, sys
from vmqos.agent import main
done = pathlib.Path(sys.argv.pop(1))
main.only_agent = lambda path: contextlib.nullcontext()
main._serve = lambda conf, read_again: done.write_text("serves")
main._once = lambda conf: done.write_text("looks once")
sys.exit(main.main())
"""
"""The agent up to where it would begin to do its work."""


@pytest.mark.parametrize(("further", "does"), [([], "serves"), (["--once"], "looks once")])
def test_what_it_warns_of_keeps_it_from_nothing_while_nothing_takes_the_log(
    tmp_path: Path, further: list[str], does: str
) -> None:
    conf, done, full = tmp_path / "vmqos.conf", tmp_path / "done", FullPipe()
    conf.write_text("[agnt]\naudit_interval = 10\n")
    command = [sys.executable, "-c", PROGRAM, str(done), "--config-file", str(conf), *further]
    with subprocess.Popen(command, stdout=full.writing, stderr=full.writing) as process:
        full.give_away()
        try:
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            full.close()
    assert done.read_text() == does
