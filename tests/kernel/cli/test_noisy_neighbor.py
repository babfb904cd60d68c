# SPDX-License-Identifier: Apache-2.0
"""``vmqos bench noisy-neighbor`` on the kernel's own resctrl; the figures of an emulated cache mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.agent.tree import Tree
from tests.kernel.inside import msr
from tools.lab import processes
from vmqos.bench.ways import Loan
from vmqos.resctrl.filesystem import Filesystem

pytestmark = [pytest.mark.guest(machines=("cascade-lake",), kernels=("newest",)), pytest.mark.feature("neighbor")]

QUICK = ("--duration", "3", "--repetitions", "3", "--working-set", "256K", "--noise", "builtin")
MASKS = 0xC90
"""IA32_L3_QOS_MASK_0 (Intel SDM volume 4); the next CLOSIDs' follow."""


def bench(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vmqos.cli.main", "bench", "noisy-neighbor", *QUICK, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def masks(cpu: int) -> list[int]:
    """The masks of the first two CLOSIDs on the cache of a CPU, as the hardware has them."""
    return [msr.read(cpu, MASKS + closid) for closid in range(2)]


def test_the_victim_gets_ways_of_its_own_and_the_default_group_gets_them_back(
    mount_resctrl: Callable[..., Path],
) -> None:
    root = mount_resctrl()
    tree = Tree(root)
    before = (tree.masks(), sorted(path.name for path in root.iterdir()))
    every = tree.every_way
    seen = list[tuple[Loan, int, list[int]]]()

    def is_seen() -> bool:
        # The bench gives the ways back under the lock: while this process has it, it sees them whole or not at all.
        with Filesystem(str(root)).lock(exclusive=False, timeout=None):
            if any(map(tree.tasks, tree.groups())):
                (name,) = tree.groups()
                loan = Loan.of_group(name)
                assert loan is not None
                (victim,) = tree.tasks(name)
                status = Path(f"/proc/{victim}/status").read_text()
                cpu = int(status.partition("Cpus_allowed_list:")[2].split()[0])
                seen.append((loan, cpu, masks(cpu)))
        return bool(seen)

    with bench("--ways", "3", "--cache", "1", "-f", "json") as running:
        processes.wait_until(is_seen, "the victim having its ways", 120.0)
        output, errors = running.communicate(timeout=240)
    assert running.returncode == 0, errors
    ((loan, cpu, masks_then),) = seen
    assert masks_then == [every & ~loan.mask.bits, loan.mask.bits]
    found = json.loads(output)
    assert (found["ways"], found["mask"], found["cache"]["id"]) == (3, str(loan.mask), 1)
    assert found["victim"]["cpus"] == [cpu]
    assert not found["meaningful"]
    assert "virtual or emulated machine" in found["remarks"][0]
    assert all(len(phase["rounds"]) == 3 and phase["low"] > 0 for phase in found["phases"].values())
    assert (tree.masks(), sorted(path.name for path in root.iterdir())) == before
    assert masks(cpu)[0] == every
