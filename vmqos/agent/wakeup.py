# SPDX-License-Identifier: Apache-2.0
"""What the loop waits for: a flag that any thread may set, and the ends of the VMs' processes."""

from __future__ import annotations

import os
import select
from collections.abc import Set

from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import Process


class Wakeup:
    """A flag to wait for, and processes; :meth:`set` may be called from any thread, the rest from one.

    Unlike :class:`threading.Event` the flag takes no lock, so that a signal handler may set it. Of a process that ends
    the kernel tells by its pidfd (pidfd_open(2)), long before libvirt does.
    """

    def __init__(self) -> None:
        self._flag = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._flag, select.EPOLLIN)
        self._ends: dict[Process, int] = {}

    def set(self) -> None:
        """End the wait under way, or the next one."""
        os.eventfd_write(self._flag, 1)

    def follow(self, running: Set[Process]) -> None:
        """Wait for the ends of these processes from now on, and of no others.

        A process that can't be waited for is left out: libvirt tells of its end, too.
        """
        for process in self._ends.keys() - running:
            os.close(self._ends.pop(process))
        for process in running - self._ends.keys():
            try:
                descriptor = os.pidfd_open(process.pid)
            except OSError:
                continue
            try:
                # The PID may be another process's by now.
                if processes.still(process):
                    # An end is told of once: a process may stay a zombie for long.
                    self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
                    self._ends[process] = descriptor
                    continue
            except exceptions.HypervisorError:
                pass
            os.close(descriptor)

    def wait(self, seconds: float) -> bool:
        """Wait until :meth:`set` was called since the last wait, a process has ended, or the time is over.

        :returns: whether a process has ended.
        """
        ready = {descriptor for descriptor, _ in self._epoll.poll(max(0.0, seconds))}
        if self._flag in ready:
            os.eventfd_read(self._flag)
        return bool(ready - {self._flag})

    def close(self) -> None:
        """Give the descriptors back; no thread may call :meth:`set` any more."""
        self.follow(set())
        self._epoll.close()
        os.close(self._flag)
