# SPDX-License-Identifier: Apache-2.0
"""The machine and its tasks; the package's docstring says how they are used."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kernel.cachemodel.counts import LINE
from tests.kernel.inside.msr import IA32_L2_QOS_EXT_BW_THRTL_0, IA32_L3_QOS_MASK_0
from tests.worth.native.build import library

MAX_OVERLAP = 64
CLOSIDS = 16
MAX_THROTTLED = 90


class Order(IntEnum):
    """In which order a load goes through its memory.

    - ``IDLE``: it does nothing.
    - ``SEQUENTIAL``: all lines in order, again and again. An LRU cache with less room than the memory takes misses all.
    - ``SHUFFLED``: all lines once in an order without regularity, again and again: a list that is followed.
    - ``RANDOM``: any item, each as likely as the others. With room for a share s of its memory, it hits with s.
    - ``ZIPF``: any item, the n-th most likely one with a weight of n ** -exponent: a key-value store.
    - ``ENDLESS``: lines that were never accessed before: a stream that no cache helps.
    """

    IDLE = 0
    SEQUENTIAL = 1
    SHUFFLED = 2
    RANDOM = 3
    ZIPF = 4
    ENDLESS = 5


@dataclass(frozen=True, slots=True)
class Load:
    """What a task does, for ever or for some time.

    :ivar size: bytes of its memory; ``ENDLESS`` and ``IDLE`` need none.
    :ivar instructions: that each access comes with, itself included.
    :ivar stores: the share of accesses that change their line, 0.0 to 1.0.
    :ivar overlap: how many lines may be underway at once, 1 to 64.
    :ivar item: bytes that are accessed in a row, of ``RANDOM`` and ``ZIPF``.
    :ivar exponent: of ``ZIPF``; 0.0 is ``RANDOM``, 0.99 is that of YCSB.
    :ivar seconds: for how long; 0.0: for ever. Loads of one task take turns.
    """

    order: Order
    size: int = LINE
    instructions: int = 4
    stores: float = 0.0
    overlap: int = 1
    item: int = LINE
    exponent: float = 0.99
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (self.size >= self.item >= LINE and self.size < 1 << 40):
            raise ValueError(f"{self}: an item has {LINE} bytes or more, and the memory has one item or more")
        if not (1 <= self.overlap <= MAX_OVERLAP and 1 <= self.instructions < 1 << 32):
            raise ValueError(f"{self}: overlap is 1 to {MAX_OVERLAP}, instructions at least 1")
        if not (0.0 <= self.stores <= 1.0 and 0.0 <= self.seconds < math.inf and math.isfinite(self.exponent)):
            raise ValueError(f"{self}: stores is 0.0 to 1.0, seconds and exponent are finite")


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one RMID on one socket. All but ``occupancy`` only grow: subtract an earlier reading.

    :ivar instructions: executed.
    :ivar cycles: that CPUs spent with tasks of this RMID; not while these tasks were idle.
    :ivar llc_references: accesses that came to the L3.
    :ivar llc_misses: those of them that it lacked.
    :ivar occupancy: bytes held in the L3 at the moment.
    :ivar total_bytes: read from memory and written to it (``mbm_total_bytes``).
    :ivar local_bytes: the same, because each socket has its own memory (``mbm_local_bytes``).
    :ivar writebacks: lines written to memory that had been brought in under this RMID.
    :ivar queued_cycles: for how long its lines waited for others at the channel, each for itself. No real counter.
    :ivar throttled_cycles: for how long its CPUs stood still for ``set_bandwidth``. No real counter.
    """

    instructions: int
    cycles: int
    llc_references: int
    llc_misses: int
    occupancy: int
    total_bytes: int
    local_bytes: int
    writebacks: int
    queued_cycles: int
    throttled_cycles: int

    def __sub__(self, before: Counters) -> Counters:
        grown = [now - then for now, then in zip(astuple(self), astuple(before), strict=True)]
        return Counters(*grown[:4], self.occupancy, *grown[5:])

    @property
    def ipc(self) -> float:
        """Instructions a cycle; 0.0 if there was no cycle."""
        return self.instructions / self.cycles if self.cycles else 0.0

    @property
    def miss_ratio(self) -> float:
        """The share of references that missed; 0.0 if there were none."""
        return self.llc_misses / self.llc_references if self.llc_references else 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a task did since it was started."""

    accesses: int
    instructions: int
    cycles: int

    def __sub__(self, before: Progress) -> Progress:
        return Progress(
            self.accesses - before.accesses, self.instructions - before.instructions, self.cycles - before.cycles
        )


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a machine."""

    number: int


class _Timing(ctypes.Structure):
    _fields_ = (
        ("hz", ctypes.c_double),
        ("bytes_per_cycle", ctypes.c_double),
        *((name, ctypes.c_uint32) for name in ("l2_cycles", "l3_cycles", "memory_cycles")),
        ("slice", ctypes.c_uint64),
    )


class _Load(ctypes.Structure):
    _fields_ = (
        ("order", ctypes.c_uint32),
        ("item", ctypes.c_uint32),
        ("lines", ctypes.c_uint64),
        ("exponent", ctypes.c_double),
        *((name, ctypes.c_uint32) for name in ("stores", "instructions", "overlap")),
        ("cycles", ctypes.c_uint64),
    )


_Counted = ctypes.c_uint64 * 10
_Progress = ctypes.c_uint64 * 3


class _Eviction(ctypes.Structure):
    _fields_ = (("by", ctypes.c_uint32), ("of", ctypes.c_uint32), ("lines", ctypes.c_uint64))


class Machine:
    """A machine. Use it in a ``with``, or :meth:`close` it, for its memory.

    :param cpus: 1 to 64, a multiple of ``sockets``.
    :param l3_bytes: of each socket's L3. The sets are the greatest multiple of 64 that fits, and at least 64.
    :param l2_bytes: of each CPU's L2, likewise.
    :param sample: 1 of ``2 ** sample`` sets is modelled, 0 to 5.
    :param rmids: how many there are, 1 to 1024.
    :param evictions: count who evicted whom.
    :param hz: cycles a second.
    :param bytes_per_cycle: of the channel to memory of each socket; ``None``: it is never busy.
    :param bandwidth: bytes a second that 100 % of ``set_bandwidth`` are, for each CPU.
    :param slice_seconds: after which tasks of one CPU take turns.
    :param trace: a file for the first half million accesses (:mod:`tests.kernel.cachemodel.recorded`); of one machine
        at a time.
    :raises ValueError: for a machine that can't be.
    """

    def __init__(
        self,
        *,
        cpus: int = 2,
        sockets: int = 1,
        l3_bytes: int = 4 << 20,
        l3_ways: int = 16,
        l2_bytes: int = 256 << 10,
        l2_ways: int = 8,
        sample: int = 0,
        rmids: int = 32,
        evictions: bool = False,
        hz: float = 1e8,
        bytes_per_cycle: float | None = None,
        l2_cycles: int = 0,
        l3_cycles: int = 80,
        memory_cycles: int = 360,
        bandwidth: int = 100_000_000,
        slice_seconds: float = 0.004,
        trace: Path | None = None,
    ) -> None:
        if not (hz > 0 and (bytes_per_cycle is None or bytes_per_cycle > 0) and slice_seconds > 0):
            raise ValueError("hz, bytes_per_cycle and slice_seconds are more than 0")
        self.cpus, self.sockets, self.rmids, self.l3_ways = cpus, sockets, rmids, l3_ways
        self.hz = hz
        self.seconds = 0.0
        """How long the machine has run."""
        options = {
            "sockets": sockets, "l3size": l3_bytes, "l3ways": l3_ways, "l3shared": 0, "l3noncont": 1, "l3clos": CLOSIDS,
            "mbaclos": CLOSIDS, "l2size": l2_bytes, "l2ways": l2_ways, "sample": sample, "rmids": rmids,
            "evictions": int(evictions), "bandwidth": bandwidth,
        }  # fmt: skip
        words = [f"{name}={value}".encode() for name, value in options.items()]
        if trace:
            words.append(b"trace=" + bytes(trace))
        timing = _Timing(
            hz, bytes_per_cycle or 0.0, l2_cycles, l3_cycles, memory_cycles, max(1, round(slice_seconds * hz))
        )
        error = ctypes.create_string_buffer(256)
        self._library = library()
        given = (ctypes.c_char_p * len(words))(*words)
        self._handle = self._library.engine_make(cpus, ctypes.byref(timing), len(words), given, error, len(error))
        if not self._handle:
            raise ValueError(error.value.decode())
        self._tasks: list[tuple[int, int, int]] = []

    def close(self) -> None:
        """Free its memory; it can't be used any more."""
        if self._handle:
            self._library.engine_free(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(
        self,
        load: Load | Sequence[Load],
        *,
        cpu: int,
        rmid: int = 0,
        closid: int = 0,
        seed: int | None = None,
        scattered: bool = False,
    ) -> Task:
        """Start a task on a CPU, which it shares with other tasks there, in turns.

        :param load: what it does; several ones, each of which has ``seconds``, take turns.
        :param seed: of what it does by chance; by default the number of tasks that were started before.
        :param scattered: its memory is pages of 4 KiB that lie anywhere, instead of one piece: some sets get more of
            its lines than others, as without huge pages.
        """
        self._check(cpu, rmid, closid)
        given, count = self._loads(load)
        seed = len(self._tasks) if seed is None else seed
        number = self._library.engine_start(self._handle, cpu, rmid, closid, seed, scattered, given, count)
        if number < 0:
            raise MemoryError
        self._tasks.append((cpu, rmid, closid))
        return Task(number)

    def change(self, task: Task, load: Load | Sequence[Load]) -> None:
        """Have a task do something else, with the same memory."""
        given, count = self._loads(load)
        if not self._library.engine_load(self._handle, task.number, given, count):
            raise MemoryError

    def assign(self, task: Task, *, cpu: int | None = None, rmid: int | None = None, closid: int | None = None) -> None:
        """Move a task to another CPU, RMID or CLOSID; what is not given stays. Lines in the L3 keep their RMID."""
        now = self._tasks[task.number]
        given = (cpu, rmid, closid)
        then = [old if new is None else new for old, new in zip(now, given, strict=True)]
        self._check(*then)
        self._tasks[task.number] = (then[0], then[1], then[2])
        self._library.engine_assign(self._handle, task.number, *then)

    def stop(self, task: Task) -> None:
        """Have a task do nothing."""
        self._library.engine_stop(self._handle, task.number, True)

    def resume(self, task: Task) -> None:
        """Have a task that was stopped go on."""
        self._library.engine_stop(self._handle, task.number, False)

    def set_ways(self, closid: int, mask: int, *, socket: int | None = None) -> None:
        """Say which ways of the L3 a class may fill; of all sockets, unless one is given. 0: it fills none."""
        if not 0 <= mask < 1 << self.l3_ways:
            raise ValueError(f"{mask:#x} is no mask of {self.l3_ways} ways")
        self._write(closid, socket, IA32_L3_QOS_MASK_0, mask)

    def set_bandwidth(self, closid: int, percent: int, *, socket: int | None = None) -> None:
        """Limit what each CPU of a class gets from memory: 10 to 100 per cent of ``bandwidth``; 100: no limit."""
        if not 100 - MAX_THROTTLED <= percent <= 100:
            raise ValueError(f"{percent} per cent: {100 - MAX_THROTTLED} to 100")
        self._write(closid, socket, IA32_L2_QOS_EXT_BW_THRTL_0, 100 - percent)

    def run(self, seconds: float) -> None:
        """Run all tasks for some time of the machine."""
        cycles = round((self.seconds + seconds) * self.hz) - round(self.seconds * self.hz)
        if cycles < 0:
            raise ValueError("time does not go back")
        self._library.engine_run(self._handle, cycles)
        self.seconds += seconds

    def counters(self, rmid: int, *, socket: int = 0) -> Counters:
        """What was counted for an RMID since the machine was made."""
        self._check(0, rmid, 0)
        counted = _Counted()
        self._library.engine_counted(self._handle, self._socket(socket), rmid, counted)
        return Counters(*counted)

    def progress(self, task: Task) -> Progress:
        """How much a task did: what it is worth to its owner."""
        progress = _Progress()
        self._library.engine_progress(self._handle, task.number, progress)
        return Progress(*progress)

    def evicted(self, *, socket: int = 0) -> dict[tuple[int, int], int]:
        """Who evicted whom: lines of the second RMID that left the L3 for lines that the first one brought in.

        Pairs that there are none of are left out. An RMID may evict its own lines. Empty without ``evictions=True``.
        """
        room = 0
        while True:
            found = (_Eviction * room)()
            count = self._library.engine_evictions(self._handle, self._socket(socket), found, room)
            if count <= room:
                return {(one.by, one.of): one.lines for one in found[:count]}
            room = count

    def _loads(self, load: Load | Sequence[Load]) -> tuple[ctypes.Array[_Load], int]:
        loads = [load] if isinstance(load, Load) else load
        if not loads or any(one.seconds * self.hz < 1 for one in loads[:-1]):
            raise ValueError("loads that take turns have seconds, all but the last one")
        rows = [
            _Load(
                one.order,
                one.item // LINE,
                one.size // LINE,
                one.exponent,
                round(one.stores * 1024),
                one.instructions,
                one.overlap,
                round(one.seconds * self.hz),
            )
            for one in loads
        ]
        return (_Load * len(rows))(*rows), len(rows)

    def _write(self, closid: int, socket: int | None, first: int, value: int) -> None:
        self._check(0, 0, closid)
        for one in range(self.sockets) if socket is None else (self._socket(socket),):
            self._library.engine_wrmsr(self._handle, one * (self.cpus // self.sockets), first + closid, value)

    def _socket(self, socket: int) -> int:
        if not 0 <= socket < self.sockets:
            raise ValueError(f"no socket {socket} of {self.sockets}")
        return socket

    def _check(self, cpu: int, rmid: int, closid: int) -> None:
        for name, value, count in (("cpu", cpu, self.cpus), ("RMID", rmid, self.rmids), ("CLOSID", closid, CLOSIDS)):
            if not 0 <= value < count:
                raise ValueError(f"no {name} {value} of {count}")
