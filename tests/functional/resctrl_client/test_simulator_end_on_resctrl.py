# SPDX-License-Identifier: Apache-2.0
"""What the client says when a simulator ends; there is no such end of the kernel's own resctrl."""

import os
import signal

import pytest

from tests.functional.resctrl_client.mounted import retry
from tools.lab import processes
from vmqos.resctrl import exceptions, groups, info, mount
from vmqos.resctrl.filesystem import Filesystem


def expect_dead(use):
    with pytest.raises(exceptions.DeadMount) as caught:
        use()
    return str(caught.value)


def helpers_of(pid):
    """The children of a process: the simulator's is the fusermount3 that would take the dead mount away."""
    return [child for child in processes.all_pids() if processes.parent(child) == pid]


def test_a_killed_simulator_is_told_with_the_command(simulator):
    fs = Filesystem(str(simulator.root))
    for helper in helpers_of(simulator.pid):
        os.kill(helper, signal.SIGKILL)
    os.kill(simulator.pid, signal.SIGKILL)
    retry(lambda: expect_dead(lambda: mount.find(fs.root)), pytest.fail.Exception)
    for use in (
        lambda: mount.find(fs.root),
        lambda: info.read_capabilities(fs),
        lambda: groups.list_control_groups(fs),
        lambda: groups.create(fs, "g"),
        lambda: fs.write("schemata", "L3:0=7ff"),
        lambda: fs.lock(exclusive=True, timeout=0).__enter__(),
    ):
        assert f"fusermount3 -u -z {fs.root}" in expect_dead(use)
