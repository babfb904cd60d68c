# SPDX-License-Identifier: Apache-2.0
"""Why a lock in use is not removed: the kernel never unlocks what it was to unlock while the device was open.

In guests of their own: what is left is freed at umount, yet stays known to its cache, and the next mask that is written
there makes the kernel oops (7.2: ``rdtgroup_cbm_overlaps_pseudo_locked``).
"""

from __future__ import annotations

import pytest

from tests.kernel.lab.machines import KERNELS
from tests.kernel.pytest_guest import Run

SCRIPT = """
set -e
mount -t resctrl resctrl /sys/fs/resctrl
vmqos lock create table --cache L2:1 --size 256K -f json >/dev/null
exec 5<>/dev/pseudo_lock/vmqos.lock-table
rmdir /sys/fs/resctrl/vmqos.lock-table
exec 5>&-
sleep 3
cut -d';' -f2 /sys/fs/resctrl/info/L2/bit_usage
vmqos lock list -f value -c Name -c Cache
vmqos lock create again --cache L2:1 --size 256K || echo refused
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kernel", KERNELS)
def test_ways_of_a_group_that_is_removed_while_its_device_is_open_stay_locked(guest: Run, kernel: str) -> None:
    result = guest.run("goldmont", kernel, SCRIPT)
    assert result.status == 0, result.stderr
    assert result.stdout.splitlines() == ["1=SSSSSSSP", "(pseudo-locked by a group that is gone) L2:1", "refused"]
    assert "have a locked region already" in result.stderr
