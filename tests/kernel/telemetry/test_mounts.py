# SPDX-License-Identifier: Apache-2.0
"""A resctrl that is unmounted under a sweeper, and one that a user without rights reads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.telemetry.unprivileged import as_nobody
from tests.kernel.telemetry.conftest import BUSY, IDLE, make_group
from vmqos.resctrl import exceptions, groups
from vmqos.resctrl.filesystem import Filesystem
from vmqos.telemetry import Missing, Reading, Sweeper, rates
from vmqos.telemetry.model import MBM_TOTAL

pytestmark = pytest.mark.guest(machines=("cascade-lake",))

MountResctrl = Callable[..., Path]


def test_a_lazy_unmount_completes_with_the_next_look_and_the_one_after_a_mount_goes_on(
    mount_resctrl: MountResctrl,
) -> None:
    root = mount_resctrl()
    make_group(Filesystem(str(root)), BUSY)
    with Sweeper(str(root)) as sweeper:
        before = sweeper.sweep()
        assert subprocess.run(["umount", root], capture_output=True, check=False).returncode != 0
        subprocess.run(["umount", "-l", root], check=True)
        # The kernel has one resctrl, and it is in use still (rdt_get_tree).
        with pytest.raises(OSError, match=r"busy|already mounted"):
            mount_resctrl()
        with pytest.raises(exceptions.NotMounted, match=f"mount -t resctrl resctrl {root}"):
            sweeper.sweep()
        mount_resctrl()
        assert not sweeper.sweep().vms
        make_group(Filesystem(str(root)), BUSY)
        after = sweeper.sweep()
    assert after.vms[BUSY].generation != before.vms[BUSY].generation
    assert rates(before, after)[BUSY].total == Reading(None, Missing.NO_PREVIOUS)
    assert after.vms[BUSY].totals[MBM_TOTAL].value is not None


def test_a_user_without_rights_reads_what_the_agent_makes_and_is_told_what_he_may_not(
    mount_resctrl: MountResctrl,
) -> None:
    root = mount_resctrl()
    fs = Filesystem(str(root))
    make_group(fs, BUSY)
    make_group(fs, IDLE)
    (root / groups.monitoring_directory("", f"vmqos.{IDLE}")).chmod(0o700)
    open_to_all, closed = (line.split() for line in as_nobody(root))
    assert open_to_all[0] == BUSY
    assert all(word.isdecimal() for word in open_to_all[1:])
    assert closed == [IDLE, *["unreadable"] * 3, "0"]
