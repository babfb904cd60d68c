# SPDX-License-Identifier: Apache-2.0
"""A mix of VMs on the lab's model of the caches, compiled for this machine: no guest, and time that accesses take.

``machine.c`` says what takes how long.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.lab.recipes import PLUGIN
from tests.worth.neighbours.mixes import Load, Mix, Pattern

SOURCES = (Path(__file__).with_name("machine.c"), PLUGIN / "cache.c", PLUGIN / "hierarchy.c")
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{PLUGIN}")

SETS, WAYS, LINE = 512, 16, 64
"""The cache: 512 KiB, a 64th of a large server's."""
LINES = SETS * WAYS
SECOND_NS = 400_000.0
"""A second of a mix, in nanoseconds of the model: a 2 500th. Beside the 64th of the cache that is the harder case: what
a cache holds is replaced 40 times more slowly than in hardware, so effects take longer to be seen."""
GHZ = 2.5
INSTRUCTION_NS, L3_NS, MEMORY_NS = 0.25, 20.0, 90.0
LINE_NS = 6.0
"""The memory channel: 10.7 GB/s for one line after the other. Scaled like all else, it is what 2 to 4 of a mix's
streaming VMs can fill."""
CHANNEL = LINE / LINE_NS * 1e9 * SECOND_NS / 1e9
"""The same in bytes a second of a mix."""


class _Load(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("pattern", "lines")),
        *(
            (name, ctypes.c_double)
            for name in ("instructions_ns", "idle_ns", "instructions", "overlap", "exponent", "stores")
        ),
    )


class _Counts(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("busy_ns", "instructions")),
        *((name, ctypes.c_uint64) for name in ("references", "misses")),
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """What one VM did in one second.

    :ivar held: bytes in the cache at its end.
    :ivar moved: bytes from and to memory.
    """

    cycles: float
    instructions: float
    references: int
    misses: int
    held: int
    moved: int


@dataclass(frozen=True, slots=True)
class Run:
    """What a mix did.

    :ivar vms: by VM, second by second.
    :ivar evicted: how many lines each VM took from each, by the one who took and the one who lost, in all.
    """

    vms: list[list[Interval]]
    evicted: list[list[int]]

    def cycles_per_instruction(self, vm: int, first: int, last: int) -> float | None:
        """Of the seconds from ``first`` up to but not including ``last``; ``None`` if the VM did nothing then."""
        seconds = self.vms[vm][first:last]
        instructions = sum(one.instructions for one in seconds)
        return sum(one.cycles for one in seconds) / instructions if instructions else None


@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "machine.so"
        subprocess.run(["gcc", *FLAGS, "-o", str(library), *map(str, SOURCES), "-lm"], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.mix_make.restype = ctypes.c_void_p
    loaded.mix_evicted.restype = ctypes.c_uint64
    return loaded


def run(mix: Mix, absent: Collection[int] = (), planted: bool = True, endless_memory: bool = False) -> Run:
    """Run a mix from an empty cache on.

    The same seed makes the same accesses, whoever is absent.

    :param absent: VMs that do nothing.
    :param planted: whether the culprit does what it was planted for; else it goes on as before.
    :param endless_memory: whether the memory channel carries any number of lines at once.
    """
    library = _library()
    number = len(mix.vms)
    handle = ctypes.c_void_p(
        library.mix_make(
            ctypes.c_uint(number),
            ctypes.c_uint32(SETS),
            ctypes.c_uint(WAYS),
            ctypes.c_double(L3_NS),
            ctypes.c_double(MEMORY_NS),
            ctypes.c_double(0.0 if endless_memory else LINE_NS),
        )
    )
    try:
        for which, vm in enumerate(mix.vms):
            library.mix_vm(handle, ctypes.c_uint(which), ctypes.c_uint64(vm.mask), ctypes.c_uint64(vm.seed))
        found: list[list[Interval]] = [[] for _ in mix.vms]
        before = [_counts(library, handle, which) for which in range(number)]
        for second in range(mix.seconds):
            for which in range(number):
                load = mix.load(which, second, planted)
                _set(library, handle, which, None if which in absent else load)
            library.mix_run(handle, ctypes.c_double((second + 1) * SECOND_NS))
            for which in range(number):
                now = _counts(library, handle, which)
                found[which].append(_between(before[which], now))
                before[which] = now
        evicted = [
            [library.mix_evicted(handle, ctypes.c_uint(by), ctypes.c_uint(of)) for of in range(number)]
            for by in range(number)
        ]
    finally:
        library.mix_free(handle)
    return Run(found, evicted)


def _set(library: ctypes.CDLL, handle: ctypes.c_void_p, which: int, load: Load | None) -> None:
    if load is None:
        made = _Load(Pattern.OFF, 1, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0)
        place = 0
    else:
        made = _Load(
            load.pattern,
            max(1, round(load.size * LINES)),
            load.instructions * INSTRUCTION_NS,
            load.idle_ns,
            load.instructions,
            load.overlap,
            load.exponent,
            load.stores,
        )
        place = load.place
    library.mix_load(handle, ctypes.c_uint(which), ctypes.byref(made), ctypes.c_uint64(place))


Numbers = tuple[float, float, int, int, int, int]


def _counts(library: ctypes.CDLL, handle: ctypes.c_void_p, which: int) -> Numbers:
    counts, held, moved = _Counts(), ctypes.c_uint64(), ctypes.c_uint64()
    library.mix_counts(handle, ctypes.c_uint(which), ctypes.byref(counts), ctypes.byref(held), ctypes.byref(moved))
    return counts.busy_ns, counts.instructions, counts.references, counts.misses, held.value, moved.value


def _between(before: Numbers, now: Numbers) -> Interval:
    return Interval(
        (now[0] - before[0]) * GHZ, now[1] - before[1], now[2] - before[2], now[3] - before[3], now[4], now[5] - before[5]
    )
