# SPDX-License-Identifier: Apache-2.0
"""The tasks that a case moves about: processes and threads of its own, each with a name for the recording."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

from tests.conformance.recording import Names


class Tasks:
    """A case's own tasks; all of them are asleep.

    :param names: where the recording looks up what a task is called.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: list[tuple[threading.Thread, threading.Event]] = []

    def start(self, name: str) -> int:
        """Start a process.

        :return: its PID.
        """
        process = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        self._processes[process.pid] = process
        self._names.add(process.pid, name)
        return process.pid

    def start_thread(self, name: str) -> int:
        """Start a thread of the case's own process.

        :return: its thread id.
        """
        event = threading.Event()
        thread = threading.Thread(target=event.wait, daemon=True)
        thread.start()
        assert thread.native_id is not None
        self._threads.append((thread, event))
        self._names.add(thread.native_id, name)
        return thread.native_id

    def myself(self) -> int:
        """The PID of the case's own process."""
        self._names.add(os.getpid(), "myself")
        return os.getpid()

    def kernel_thread(self) -> int:
        """The PID of a thread of the kernel's that starts no others: what kthreadd starts would be in its group."""
        for name in Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if name.read_bytes() == b"ksoftirqd/0\n":
                    self._names.add(int(name.parent.name), "kernel thread")
                    return int(name.parent.name)
        raise LookupError("/proc shows no ksoftirqd/0")

    def kill(self, pid: int) -> None:
        """Kill a process but leave it a zombie."""
        self._processes[pid].send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def reap(self, pid: int) -> None:
        """Kill a process, and let nothing of it be left."""
        process = self._processes.pop(pid)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End them all."""
        for thread, event in self._threads:
            event.set()
            thread.join()
        self._threads.clear()
        for pid in list(self._processes):
            self.reap(pid)
