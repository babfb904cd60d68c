# SPDX-License-Identifier: Apache-2.0
"""Noticing a process's new threads at the cost of one system call while there are none."""

from __future__ import annotations

import os
from collections.abc import Set

from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process


class NewThreads:
    """Watches the threads of one process.

    :ivar process: the process.
    :param known: those of its threads that are not new.
    """

    def __init__(self, process: Process, known: Set[int]) -> None:
        self.process = process
        self._links = -1
        self._known = known
        self._young: Set[int] = frozenset()

    def look(self) -> Set[int]:
        """The threads that were born since the look before the last one.

        Each is told of twice, because libvirt pins a new vCPU's thread after QEMU has made it.

        :raises vmqos.hypervisor.exceptions.ProcessVanished: if the process has ended.
        :raises OSError: if its threads can't be listed.
        """
        try:
            # The directory has one link more for each thread (``proc_task_getattr``).
            links = os.stat(f"/proc/{self.process.pid}/task").st_nlink
        except OSError:
            links = 0
        if links == self._links and not self._young:
            return frozenset()
        with processes.opened(self.process) as descriptor:
            now = processes.tasks(self.process.pid, descriptor)
        found = now - self._known
        self._known = now - (found - self._young)
        self._links, self._young = links, found - self._young
        return found
