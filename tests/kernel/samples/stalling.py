# SPDX-License-Identifier: Apache-2.0
"""A test during which its guest's kernel hangs: once, or always if it is the only one of its guest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.guest(machines="milan-kvm", kernels="6.12")


def test_before() -> None:
    pass


@pytest.mark.timeout(1, func_only=True)
def test_stalls_once() -> None:
    end_the_time_limit()
    if any("test_before" in name for name in json.loads(Path(os.environ["VMQOS_GUEST_ITEMS"]).read_text())):
        stall()


@pytest.mark.timeout(1, func_only=True)
def test_stalls() -> None:
    end_the_time_limit()
    stall()


def test_after() -> None:
    pass


def end_the_time_limit() -> None:
    """Have the time limit end nothing in the guest: a slow one takes longer to stall. The lab outside goes by it."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def stall() -> None:
    """Leave no CPU to the kernel's own threads, so that RCU comes to no end."""
    Path("/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout").write_text("3")
    Path("/proc/sys/kernel/sched_rt_runtime_us").write_text("-1")
    subprocess.run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"], check=True)
    for runtime in Path("/sys/kernel/debug/sched/fair_server").glob("cpu*/runtime"):
        # Linux 6.12 would leave a twentieth of each CPU to others.
        runtime.write_text("0")
    for cpu in range(os.cpu_count() or 1):
        spin = ["taskset", "--cpu-list", str(cpu), "chrt", "--fifo", "99", "sh", "-c", "while :; do :; done"]
        subprocess.Popen(spin)
    time.sleep(1000)
