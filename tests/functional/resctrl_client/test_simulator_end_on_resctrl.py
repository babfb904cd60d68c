# SPDX-License-Identifier: Apache-2.0
"""What the client says when a simulator ends; there is no such end of the kernel's own resctrl."""

import pytest

from tests.functional.resctrl_client.mounted import running_simulator
from vmqos.resctrl import exceptions, groups, info, mount


def test_a_killed_simulator_is_told_with_the_command():
    with running_simulator() as (fs, process):
        process.kill()
        process.wait()
        for use in (
            lambda: mount.find(fs.root),
            lambda: info.read_capabilities(fs),
            lambda: groups.list_control_groups(fs),
            lambda: groups.create(fs, "g"),
            lambda: fs.write("schemata", "L3:0=7ff"),
            lambda: fs.lock(exclusive=True, timeout=0).__enter__(),
        ):
            with pytest.raises(exceptions.DeadMount, match=f"fusermount3 -u -z {fs.root}"):
                use()
