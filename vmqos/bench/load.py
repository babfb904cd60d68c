# SPDX-License-Identifier: Apache-2.0
"""The loads of the experiment, each a process of its own; run as a script, and only with the standard library.

``load.py PARENT CPUS victim BYTES``
    follows a chain of pointers through BYTES of memory; each line of standard input, a number of seconds, is answered
    by the number of accesses and the nanoseconds they took.
``load.py PARENT CPUS stream BYTES``
    copies memory from the first line of standard input on, until it is killed.
``load.py PARENT CPUS run PROGRAM ARGUMENT...``
    turns into that program at the first line of standard input.

Each says ``ready`` first, or ``error`` with the reason; it is killed when PARENT ends.

The victim's loop is four instructions of machine code. Each address is read from the memory before it, so that neither
the processor's prefetchers nor its out-of-order execution can hide what an access takes, and nothing else runs
meanwhile: an interpreter's own loop would take longer than the cache, and evict it. A compiler would make the same four
instructions, but few compute nodes have one. The neighbour's copying is the C library's.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import random
import signal
import sys
import time

LINE = 64
"""Bytes of a cache line, on x86 and on nearly all of Arm."""
STEPS = 20_000
"""Accesses between two looks at the clock: at 5 to 100 ns each, a look is less than 1 % of them."""
BLOCK = 256 * 1024
"""Bytes of a copy: beyond a share of the L3 (``x86_non_temporal_threshold``) the C library writes past the caches."""

CHASE = {
    # loop: mov rdi, [rdi]; dec rsi; jnz loop; mov rax, rdi; ret
    "x86_64": bytes.fromhex("488b3f 48ffce 75f8 4889f8 c3"),
    # loop: ldr x0, [x0]; subs x1, x1, #1; b.ne loop; ret
    "aarch64": bytes.fromhex("000040f9 210400f1 c1ffff54 c0035fd6"),
}
"""``void *chase(void *start, size_t steps)`` by machine: follows the pointers, at least one."""

_PR_SET_PDEATHSIG = 1
_HUGEPAGES = getattr(mmap, "MADV_HUGEPAGE", None)


class Unusable(Exception):
    """What keeps the load from running."""


def main(arguments: list[str]) -> None:
    """Be one of the loads."""
    parent, cpus, kind, *rest = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        return
    try:
        os.sched_setaffinity(0, set(map(int, cpus.split(","))))
        {"victim": _victim, "stream": _stream, "run": _run}[kind](libc, rest)
    except (OSError, Unusable) as error:
        _say(f"error {error}")
        sys.exit(str(error))


def _victim(libc: ctypes.CDLL, arguments: list[str]) -> None:
    code = _executable(libc, CHASE)
    chase = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(_address(code))
    memory, position = chain(int(arguments[0]))
    _say("ready")
    for line in sys.stdin:
        start = now = time.perf_counter_ns()
        end, done = start + int(float(line) * 1e9), 0
        while now < end:
            position = chase(position, STEPS)
            done += STEPS
            now = time.perf_counter_ns()
        _say(f"{done} {now - start}")
    memory.close()


def chain(size: int) -> tuple[mmap.mmap, int]:
    """Memory whose lines point to each other in one circle. The order has no pattern, and is the same each time.

    :param size: bytes, at least two lines.
    :returns: the memory, and the address of one of its lines.
    """
    memory = _memory(size)
    address = _address(memory)
    lines = size // LINE
    order = list(range(lines))
    random.Random(size).shuffle(order)
    words, step = memoryview(memory).cast("Q"), LINE // 8
    for line, following in zip(order, order[1:] + order[:1], strict=True):
        words[line * step] = address + following * LINE
    words.release()
    return memory, address


def _stream(libc: ctypes.CDLL, arguments: list[str]) -> None:
    half = max(int(arguments[0]) // 2 // BLOCK, 1) * BLOCK
    memory = _memory(2 * half)
    source = _address(memory)
    target = source + half
    _say("ready")
    sys.stdin.readline()
    copy = ctypes.memmove
    while True:
        for offset in range(0, half, BLOCK):
            copy(target + offset, source + offset, BLOCK)


def _run(libc: ctypes.CDLL, arguments: list[str]) -> None:
    _say("ready")
    sys.stdin.readline()
    # Python ignores it, and so would the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execvp(arguments[0], arguments)


def _memory(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _HUGEPAGES is not None:
        # Fewer misses of the TLB, which are none of the cache's.
        with contextlib.suppress(OSError):
            memory.madvise(_HUGEPAGES)
    return memory


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _executable(libc: ctypes.CDLL, code: dict[str, bytes]) -> mmap.mmap:
    machine = platform.machine()
    if machine not in code:
        raise Unusable(f"there is no victim for processors of the kind {machine}, only for {', '.join(code)}")
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code[machine])
    # Making it executable only after it was written also makes Arm's instruction cache see it.
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if libc.mprotect(_address(memory), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        raise Unusable(f"memory can't be made executable ({os.strerror(ctypes.get_errno())}; SELinux's execmem?)")
    return memory


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
