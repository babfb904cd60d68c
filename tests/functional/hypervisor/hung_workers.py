# SPDX-License-Identifier: Apache-2.0
"""A libvirtd whose workers hang while its main thread goes on: it takes connections and answers keep-alive messages.

``python -m tests.functional.hypervisor.hung_workers PID`` stops the workers, says so by one line on stdout, and lets
them go on when its stdin ends: the kernel resumes the threads of a tracer that exits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tools.lab.workspace import CHECKOUT

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207

WALL = 0x40000000
"""``__WALL``: wait for threads of other processes, too."""

WORKERS = ("rpc-", "prio-rpc-")
"""How libvirt names its workers' threads (``virNetServerNew``): ``rpc-libvirtd``, ``prio-rpc-virtqemud``."""


@contextlib.contextmanager
def hung_workers(pid: int) -> Iterator[None]:
    """The workers of this libvirt daemon hang as long as the block runs."""
    command = [sys.executable, "-m", "tests.functional.hypervisor.hung_workers", str(pid)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdin is not None and tracer.stdout is not None
        said = tracer.stdout.readline()
        assert said.startswith("stopped"), "no worker could be stopped"
        try:
            yield
        finally:
            tracer.stdin.close()


def _stop_workers(pid: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    stopped = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (thread / "comm").read_text()
        except (FileNotFoundError, ProcessLookupError):
            # The daemon has a thread for each VM, which ends some time after the VM.
            continue
        if name.startswith(WORKERS):
            for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
                if libc.ptrace(request, int(thread.name), None, None):
                    error = ctypes.get_errno()
                    raise OSError(error, os.strerror(error), f"ptrace({request:#x}) of {thread}")
            stopped += 1
    return stopped


def _reap() -> None:
    """Take note of threads that end; otherwise a daemon that is killed would stay until its tracer ends."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, WALL)


if __name__ == "__main__":
    number = _stop_workers(int(sys.argv[1]))
    if number:
        threading.Thread(target=_reap, daemon=True).start()
        print(f"stopped {number}", flush=True)
    sys.stdin.read()
