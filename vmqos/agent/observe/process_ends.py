# SPDX-License-Identifier: Apache-2.0
"""The ends of the VMs' processes: the kernel tells of one by its pidfd (pidfd_open(2)), long before libvirt does."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Set

from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import Process


class ProcessEnds:
    """Waits for the ends of processes in a thread of its own: the loop may be waiting for libvirt just then.

    The methods may be called from one thread. The thread is started with the first process that there is to follow.

    :param on_end: called with processes that have ended, from the thread, or by :meth:`follow`.
    """

    def __init__(self, on_end: Callable[[Set[Process]], None]) -> None:
        self._on_end = on_end
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._stop, select.EPOLLIN)
        self._followed: dict[Process, int] = {}
        self._gone: Set[Process] = frozenset()
        """Those that had ended before they could be followed, and were told of."""
        self._thread: threading.Thread | None = None

    def follow(self, running: Set[Process]) -> None:
        """Wait for the ends of these processes from now on, and of no others; one that has ended is told of at once.

        A process that can't be waited for is left out: libvirt tells of its end, too.
        """
        gone = set[Process]()
        for process in self._followed.keys() - running:
            # This takes it out of the epoll, too: no other descriptor refers to it.
            os.close(self._followed.pop(process))
        for process in running - self._followed.keys() - self._gone:
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                gone.add(process)
                continue
            except OSError:
                continue
            try:
                # The PID may be another process's by now.
                if processes.still(process):
                    # First, for the thread may be told of the end at once.
                    self._followed[process] = descriptor
                    # An end is told of once: a process may stay a zombie for long.
                    self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
                    continue
                gone.add(process)
            except (exceptions.HypervisorError, OSError):
                # OSError: this user has as many watches as the kernel gives it (epoll(7), max_user_watches).
                self._followed.pop(process, None)
            os.close(descriptor)
        if self._followed and self._thread is None:
            thread = threading.Thread(target=self._wait, name="ends", daemon=True)
            # Where no thread can be started now, a later call tries again: what has ended by then is told of, too.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread
        self._gone = self._gone & running | gone
        if gone:
            self._on_end(gone)

    def close(self) -> None:
        """End the thread, and give the descriptors back."""
        if self._thread is not None:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            self._thread = None
        for descriptor in self._followed.values():
            os.close(descriptor)
        self._followed.clear()
        self._epoll.close()
        os.close(self._stop)

    def _wait(self) -> None:
        while self._stop not in (ready := {descriptor for descriptor, _ in self._epoll.poll()}):
            # A process that is no longer followed by now is somebody's who knows of its end.
            self._on_end({process for process, descriptor in self._followed.copy().items() if descriptor in ready})
