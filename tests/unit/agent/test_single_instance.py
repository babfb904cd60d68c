# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vmqos.agent import exceptions
from vmqos.agent.single_instance import is_running, only_agent

HOLDER = """
import sys, time
from vmqos.agent.single_instance import only_agent
with only_agent("/resctrl", sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_second_agent_on_a_resctrl_refuses_and_names_the_first(tmp_path: Path) -> None:
    with (
        only_agent("/resctrl", str(tmp_path)),
        pytest.raises(exceptions.AlreadyRunning, match=f"PID {os.getpid()}"),
        only_agent("/resctrl", str(tmp_path)),
    ):
        pytest.fail("both agents run")


def test_another_resctrl_has_another_lock(tmp_path: Path) -> None:
    with only_agent("/one", str(tmp_path)), only_agent("/two", str(tmp_path)):
        assert len(list(tmp_path.iterdir())) == 2


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with only_agent("/resctrl", str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_agent_is_no_obstacle(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(exceptions.AlreadyRunning, match=f"PID {holder.pid}"), only_agent("/resctrl", str(tmp_path)):
        pytest.fail("both agents run")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    with only_agent("/resctrl", str(tmp_path)):
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(exceptions.DirectoryUnusable, match="file/locks"),
        only_agent("/resctrl", str(tmp_path / "file" / "locks")),
    ):
        pytest.fail("there is no such directory")


def test_whether_one_runs_is_seen_without_taking_its_lock(tmp_path: Path) -> None:
    assert not is_running("/resctrl", str(tmp_path))
    with only_agent("/resctrl", str(tmp_path)):
        assert is_running("/resctrl", str(tmp_path))
        assert not is_running("/resctrl", str(tmp_path), who="bench")
    (tmp_path / "agent-resctrl.lock").write_text("4711\n")
    assert not is_running("/resctrl", str(tmp_path)), "a file that was left behind means nothing"
