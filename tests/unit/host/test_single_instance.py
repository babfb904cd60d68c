# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vmqos.host import exceptions, single_instance
from vmqos.host.single_instance import is_running, only_agent
from vmqos.hypervisor.processes import HEAD_OF_STATUS

HOLDER = """
import sys, time
from vmqos.host.single_instance import only_agent
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


def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    with only_agent("/resctrl", str(tmp_path / "run" / "vmqos")):
        assert is_running("/resctrl", str(tmp_path / "run" / "vmqos"))


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
    (tmp_path / "agent-resctrl.running").write_text("4711\n")
    assert not is_running("/resctrl", str(tmp_path)), "a file that was left behind means nothing"


def test_no_other_user_can_open_the_lock_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with only_agent("/resctrl", str(tmp_path)):
            (file,) = tmp_path.iterdir()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The lock file of an earlier version, which all users can open."""
    file = tmp_path / "agent-resctrl.lock"
    file.write_text("4711\n")
    file.chmod(0o644)
    return file


def test_an_agent_of_an_earlier_version_is_seen(tmp_path: Path, earlier: Path) -> None:
    with earlier.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_running("/resctrl", str(tmp_path))
        with (
            pytest.raises(exceptions.AlreadyRunning, match=f"PID {os.getpid()}"),
            only_agent("/resctrl", str(tmp_path)),
        ):
            pytest.fail("it runs beside the earlier one")
    assert not is_running("/resctrl", str(tmp_path))
    with only_agent("/resctrl", str(tmp_path)):
        pass


@pytest.mark.parametrize(
    ("uids", "is_owners"),
    [("0 0 0 0", True), ("1000 1000 1000 1000", False), ("1000 0 0 0", False), ("0 1000 0 0", False)],
)
def test_only_a_process_that_is_its_owners_in_every_way_counts(tmp_path: Path, uids: str, is_owners: bool) -> None:
    write_status(tmp_path, f"Name:\tsu\nUmask:\t0022\nUid:\t{uids}\nGid:\t0 0 0 0\n")
    assert single_instance._runs_as(4711, 0, str(tmp_path)) == is_owners


def test_no_more_of_a_process_is_read_than_the_head_of_its_status(tmp_path: Path) -> None:
    write_status(tmp_path, "Name:\tsu\n" + "x" * HEAD_OF_STATUS + "\nUid:\t0 0 0 0\n")
    assert not single_instance._runs_as(4711, 0, str(tmp_path))


def write_status(proc: Path, text: str) -> None:
    (proc / "4711").mkdir()
    (proc / "4711" / "status").write_text(text)
