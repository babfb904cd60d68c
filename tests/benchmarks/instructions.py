# SPDX-License-Identifier: Apache-2.0
"""How many instructions a process executes, in the kernel and out of it: a figure that no other load disturbs.

In the kernel lab the bandwidth counters of resctrl count what the emulated CPUs execute (``tests/kernel/plugin``), and
with :data:`PLUGIN` to the instruction; so a process in a monitoring group of its own is one whose instructions are
counted.
"""

from __future__ import annotations

import time

from tests.benchmarks.figures import Action
from vmqos.resctrl import exceptions, groups, tasks
from vmqos.resctrl.filesystem import Filesystem

BYTES = 65536
"""Of the counters, for each instruction: their own unit."""

PLUGIN = {"bytes": BYTES, "upscale": BYTES, "mbmoff": 20}
"""How the guest has to be started for that; ``mbmoff`` has the counters go round later than in a minute."""

THRESHOLD = 4 * BYTES
"""Bytes that an RMID may still occupy when it is used again."""


def let_rmids_go(filesystem: Filesystem) -> None:
    """Have the kernel use RMIDs again.

    Its own threshold is the cache's size divided by the number of RMIDs, rounded to the counters' unit
    (``rdt_get_mon_l3_config``). With a unit as coarse as :data:`BYTES` that is 0, and no RMID ever has less than that.
    """
    filesystem.write("info/L3_MON/max_threshold_occupancy", str(THRESHOLD))


class Counter:
    """Counts the instructions of the processes in one monitoring group."""

    def __init__(self, filesystem: Filesystem, name: str) -> None:
        self._filesystem = filesystem
        self._name = f"bench-{name}"
        self._group = groups.monitoring_directory("", self._name)
        self._make()
        caches = filesystem.directories(self._group, "mon_data")
        self._files = [f"{self._group}/mon_data/{cache}/mbm_total_bytes" for cache in caches]

    def _make(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                return groups.create_monitoring_group(self._filesystem, "", self._name)
            except exceptions.RmidsInLimbo:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def watch(self, pid: int) -> None:
        """Count what this process executes from now on."""
        tasks.move(self._filesystem, self._group, {pid})

    def enter(self) -> None:
        """Count what the calling process executes from now on."""
        self._filesystem.write(f"{self._group}/tasks", "0")

    def read(self) -> int:
        """The instructions so far."""
        return sum(int(self._filesystem.read(path)) for path in self._files) // BYTES

    def between(self, action: Action) -> int:
        """How many one action takes, with those that counting takes where it is this process that is counted."""
        before = self.read()
        action()
        return self.read() - before

    def close(self) -> None:
        """Remove the group."""
        groups.remove_monitoring_group(self._filesystem, "", self._name)
