# SPDX-License-Identifier: Apache-2.0
"""What stands in the place of a VM's QEMU: a process that a tenant has taken over.

libvirt starts it as the VM's emulator, with QEMU's whole command line. It starts the real QEMU as its child, which
serves libvirt's monitor, gives up every capability, and then does what it is told over a socket beside the emulator.
Standard library only, one file: it is run by its path.
"""

from __future__ import annotations

import _thread
import ctypes
import itertools
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_MM, PR_SET_MM_MAP = 1, 15, 35, 14
PTRACE_TRACEME = 0
SYS_CAPSET, SYS_EXIT, SYS_CLONE = 126, 60, 56
"""Numbers of x86-64."""

MEBIBYTE = 1 << 20

Said = dict[str, Any]


def drop_capabilities() -> None:
    """Be as powerless as the kernel lets a process of root's be: its files are still root's, its rights are not."""
    header = struct.pack("<Ii", 0x20080522, 0)
    if LIBC.syscall(SYS_CAPSET, header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


class Arguments:
    """The process's argv, as others read it in ``/proc/PID/cmdline``."""

    def __init__(self) -> None:
        # Whoever drops capabilities may no longer be asked for them in an untidy order: these are read once.
        text = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        field = {number: int(text[number - 3]) for number in (26, 27, 28, 45, 46, 47, 48, 49, 50, 51)}
        LIBC.sbrk.restype = ctypes.c_void_p
        self._before = [field[26], field[27], field[45], field[46], field[47], LIBC.sbrk(0), field[28]]
        self._own = (field[48], field[49], field[50], field[51])
        auxv = Path("/proc/self/auxv").read_bytes()
        self._auxv, self._auxv_size = ctypes.create_string_buffer(auxv), len(auxv)
        self._memory: mmap.mmap | None = None

    def point_at(self, begin: bytes, size: int, end: bytes = b"") -> None:
        """Have argv be ``size`` bytes of memory that was never touched, with something at its beginning and end."""
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory[: len(begin)] = begin
        if end:
            memory[size - len(end) :] = end
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._set(address, address + size, *self._own[2:])
        self._memory = memory

    def restore(self) -> None:
        """Have argv be what the process was started with."""
        self._set(*self._own)
        self._memory = None

    def _set(self, *four: int) -> None:
        """``prctl(PR_SET_MM, PR_SET_MM_MAP)``, which needs no capability (kernel/sys.c, ``prctl_set_mm_map``)."""
        values = (*self._before, *four, ctypes.addressof(self._auxv), self._auxv_size, 0xFFFFFFFF)
        layout = struct.pack("<12QII", *values)
        size = ctypes.c_ulong(len(layout))
        if LIBC.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.c_char_p(layout), size, ctypes.c_ulong(0)) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM_MAP)")


class Sleepers:
    """Threads that sleep until they are ended.

    Few are begun or ended at a time. Each thread that waits for the interpreter wakes every 5 ms to ask for it, so
    thousands that wait at once leave the machine's CPUs to nobody else for minutes.
    """

    AT_ONCE = 64

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._reading, self._writing = os.pipe()
        self._begun, self._ended = threading.Semaphore(0), threading.Semaphore(0)
        self._count = 0

    def begin(self, count: int) -> None:
        """Start so many.

        :raises RuntimeError: if the kernel refuses one.
        """
        threading.stack_size(65536)
        for number in range(1, count + 1):
            _thread.start_new_thread(self._live, ())
            self._count += 1
            if number % self.AT_ONCE == 0 or number == count:
                for _ in range((number - 1) % self.AT_ONCE + 1):
                    self._begun.acquire()

    def end(self) -> None:
        """End them all."""
        while self._count:
            some = min(self.AT_ONCE, self._count)
            os.write(self._writing, b"." * some)
            for _ in range(some):
                self._ended.acquire()
            self._count -= some
        os.close(self._reading)
        os.close(self._writing)

    def _live(self) -> None:
        LIBC.prctl(PR_SET_NAME, ctypes.c_char_p(self._name), 0, 0, 0)
        self._begun.release()
        os.read(self._reading, 1)
        self._ended.release()


class Tenant:
    """Does what it is told, by methods whose names begin with ``do_``."""

    def __init__(self) -> None:
        self._arguments = Arguments()
        self._threads_end = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sleepers: list[Sleepers] = []
        self._children: list[int] = []
        self._main_ends = threading.Event()

    def obey(self, connection: socket.socket) -> None:
        """Carry out one order a line, and answer each by one line."""
        with connection, connection.makefile("rw", encoding="utf-8") as lines:
            for line in lines:
                order = json.loads(line)
                try:
                    told = getattr(self, f"do_{order.pop('do')}")(**order)
                except OSError as error:
                    told = {"refused": f"{error.strerror or error} ({error.errno})"}
                except RuntimeError as error:
                    # What Python makes of the kernel's refusal of a thread.
                    told = {"refused": str(error)}
                lines.write(json.dumps(told or {}) + "\n")
                lines.flush()

    def wait_for_main_end(self) -> None:
        """Be the main thread: end alone once that is ordered, and never otherwise."""
        self._main_ends.wait()
        LIBC.syscall(SYS_EXIT, 0)

    def do_argv(self, begin: str, size: int, end: str = "") -> None:
        """Point argv at ``size`` bytes."""
        self._arguments.point_at(begin.encode("latin-1"), size, end.encode("latin-1"))

    def do_restore(self) -> None:
        """End what was begun: argv, threads, children."""
        self._arguments.restore()
        self._threads_end.set()
        self._threads_end = threading.Event()
        for pid in self._children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue
        self._children = []
        for sleepers in self._sleepers:
            sleepers.end()
        self._sleepers = []
        for thread in self._threads:
            thread.join(20)
        self._threads = []

    def do_name(self, name: str, main: bool = False) -> None:
        """Rename the main thread, or start a thread of this name."""
        if main:
            Path(f"/proc/self/task/{os.getpid()}/comm").write_bytes(name.encode("latin-1"))
        else:
            self._start(name.encode("latin-1"), 1)

    def do_threads(self, count: int, name: str = "CPU 0/KVM") -> None:
        """Start many threads that sleep."""
        self._start(name.encode("latin-1"), count)

    def _start(self, name: bytes, count: int) -> None:
        self._sleepers.append(Sleepers(name))
        self._sleepers[-1].begin(count)

    def _background(self, body: Callable[[], None]) -> None:
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self._threads.append(thread)

    def do_churn(self, at_once: int, seconds: float) -> None:
        """Start and end threads for some time, in the background."""
        threading.stack_size(65536)
        end, until = self._threads_end, time.monotonic() + seconds

        def live() -> None:
            time.sleep(0.02)

        def churn() -> None:
            while time.monotonic() < until and not end.is_set():
                batch = [threading.Thread(target=live, daemon=True) for _ in range(at_once)]
                for thread in batch:
                    thread.start()
                for thread in batch:
                    thread.join()

        self._background(churn)

    def do_rename_storm(self, names: list[str], seconds: float) -> None:
        """Give the main thread one name after the other for some time, in the background."""
        end, until = self._threads_end, time.monotonic() + seconds

        def rename() -> None:
            for name in itertools.cycle(names):
                if time.monotonic() > until or end.is_set():
                    return
                Path(f"/proc/self/task/{os.getpid()}/comm").write_bytes(name.encode("latin-1"))
                time.sleep(0.001)

        self._background(rename)

    def do_fork_storm(self, seconds: float) -> None:
        """Fork children that end at once for some time, from a child."""

        def storm() -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)

        self._fork(storm)

    def do_children(self, count: int, state: str) -> Said:
        """Fork children that are left in a state: asleep, zombie, stopped, traced, without a main thread."""
        bodies: dict[str, Callable[[], None]] = {
            "asleep": lambda: time.sleep(600),
            "zombie": lambda: None,
            "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
            "traced": _be_traced,
            "leaderless": _lose_main_thread,
        }
        for _ in range(count):
            self._fork(bodies[state])
        time.sleep(0.1)
        return {"pids": self._children[-count:]}

    def _fork(self, body: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            body()
            os._exit(0)
        self._children.append(pid)

    def do_vfork(self) -> None:
        """Leave a thread waiting in vfork for a child that never executes anything; it lasts until the VM's end."""

        def wait() -> None:
            # The child goes on with the parent's memory, and sleeps; only then is the interpreter free again.
            if LIBC.vfork() == 0:
                LIBC.pause()

        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)

    def do_end_main(self) -> None:
        """End the main thread alone, so that the process's leader is a zombie while its other threads live."""
        self._main_ends.set()
        time.sleep(0.2)

    def do_flood_descriptors(self, count: int) -> None:
        """Open many files."""
        self._open = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]


def _be_traced() -> None:
    LIBC.ptrace(PTRACE_TRACEME, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)


def _lose_main_thread() -> None:
    # A forked child has one thread: another one must live on.
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    time.sleep(0.05)
    LIBC.syscall(SYS_EXIT, 0)


def main() -> None:
    """Be the emulator."""
    # On a host, systemd gives machine.slice as much of the CPUs as system.slice, however many threads a VM has. The VMs
    # here share the agent's cgroup, in which each thread counts: 15 000 of them would leave nothing to any process.
    os.nice(5)
    arguments = sys.argv[1:]
    here = Path(__file__).parent
    uuid = arguments[arguments.index("-uuid") + 1]
    ready = threading.Event()

    def serve() -> None:
        def die_with_parent() -> None:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        # This thread, not the main one, is QEMU's parent: the main thread may be told to end.
        qemu = subprocess.Popen(
            [(here / "real-emulator").read_text(), *arguments], close_fds=False, preexec_fn=die_with_parent
        )
        drop_capabilities()
        threading.Thread(target=lambda: os._exit(qemu.wait() & 0x7F), daemon=True).start()
        tenant = Tenant()
        with socket.socket(socket.AF_UNIX) as listener:
            # Who waits for the socket connects once it is there, and is refused until someone listens.
            unfinished = here / f"{uuid}.new"
            listener.bind(str(unfinished))
            listener.listen()
            unfinished.rename(here / f"{uuid}.sock")
            tenants.append(tenant)
            ready.set()
            while True:
                tenant.obey(listener.accept()[0])

    tenants: list[Tenant] = []
    threading.Thread(target=serve, daemon=True).start()
    ready.wait()
    # Capabilities are each thread's own.
    drop_capabilities()
    tenants[0].wait_for_main_end()


if __name__ == "__main__":
    main()
