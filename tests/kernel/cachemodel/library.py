# SPDX-License-Identifier: Apache-2.0
"""The plugin's model of the caches without QEMU: its C compiled as a library of this machine."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from enum import IntEnum
from pathlib import Path

from tests.kernel.cachemodel.counts import NUMBERS, Counts
from tests.kernel.lab.recipes import PLUGIN

SOURCES = ("cache.c", "evictions.c", "hierarchy.c", "report.c", "window.c", "selftest/replay.c")
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


class Kind(IntEnum):
    """What an access is (``enum kind``)."""

    LOAD = 0
    STORE = 1
    FETCH = 2


class From(IntEnum):
    """Where it is served from (``enum served``)."""

    L2 = 0
    L3 = 1
    MEMORY = 2


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of the caches (``struct geometry``); a cache of no ways is not there."""

    l2_sets: int
    l2_ways: int
    l3_sets: int
    l3_ways: int
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """One access (``struct access``).

    :ivar line: the address less the bits within the line.
    :ivar l2_mask: the ways of the L2 that it may fill.
    :ivar l3_mask: the same of the L3.
    """

    line: int
    kind: Kind = Kind.LOAD
    l3_mask: int = (1 << 64) - 1
    l2_mask: int = (1 << 64) - 1
    cpu: int = 0
    domain: int = 0
    rmid: int = 0


@dataclass(frozen=True, slots=True)
class Extra:
    """What else is counted (``struct extra``).

    :ivar evictions: who evicted whom.
    """

    evictions: bool = False


class _Extra(ctypes.Structure):
    _fields_ = (("evictions", ctypes.c_bool),)


class _Geometry(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("l2_sets", "l3_sets", "l2_ways", "l3_ways", "sample"))


class _Access(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("cpu", "domain", "rmid", "kind")),
        *((name, ctypes.c_uint64) for name in ("number", "l2_mask", "l3_mask")),
    )


def build(directory: Path) -> ctypes.CDLL:
    """Compile and load it.

    :raises subprocess.CalledProcessError: if gcc refuses; it says why on standard error.
    """
    library = directory / "replay.so"
    sources = [str(PLUGIN / name) for name in SOURCES]
    subprocess.run(["gcc", *FLAGS, "-o", str(library), *sources], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.replay_make.restype = ctypes.c_void_p
    loaded.replay_report.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    for name in ("window_count", "hierarchy_held_in_way", "hierarchy_evicted", "sample_places"):
        getattr(loaded, name).restype = ctypes.c_uint64
    return loaded


class Model:
    """A machine's caches; CPUs are dealt out to domains evenly, in order.

    :param library: from :func:`build`.
    :param extra: what is counted beside the accesses.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        geometry: Geometry,
        cpus: int = 1,
        domains: int = 1,
        rmids: int = 4,
        *,
        extra: Extra | None = None,
    ) -> None:
        self._library = library
        g = geometry
        made = _Geometry(g.l2_sets, g.l3_sets, g.l2_ways, g.l3_ways, g.sample)
        counted = _Extra(*astuple(extra or Extra()))
        handle = library.replay_make(cpus, domains, rmids, ctypes.byref(made), ctypes.byref(counted))
        self._handle = ctypes.c_void_p(handle)

    def close(self) -> None:
        """Free its memory."""
        self._library.replay_free(self._handle)

    def run(self, accesses: Iterable[Access]) -> list[From]:
        """Make accesses, one after the other."""
        return [From(where) for where in self.prepare(accesses)()]

    def prepare(self, accesses: Iterable[Access]) -> Callable[[], bytes]:
        """What makes accesses, without a line of Python in between, and says where from they were served."""
        rows = [_Access(a.cpu, a.domain, a.rmid, a.kind, a.line, a.l2_mask, a.l3_mask) for a in accesses]
        given, count = (_Access * len(rows))(*rows), ctypes.c_size_t(len(rows))
        served = (ctypes.c_uint8 * len(rows))()

        def make() -> bytes:
            self._library.replay_accesses(self._handle, given, count, served)
            return bytes(served)

        return make

    def flush(self, cpu: int = 0, domain: int = 0) -> None:
        """What WBINVD does."""
        self._library.hierarchy_flush(self._handle, cpu, domain)

    def counts(self, rmid: int = 0, domain: int = 0) -> Counts:
        """What was counted, as a guest reads it."""
        return Counts.of([self._library.window_count(self._handle, domain, rmid, which) for which in range(NUMBERS)])

    def evicted(self, by: int, of: int, domain: int = 0) -> int:
        """Lines of one RMID that left an L3 for those that another brought in."""
        lines: int = self._library.hierarchy_evicted(self._handle, domain, by, of)
        return lines

    def report(self, path: Path) -> None:
        """Write what was counted, as the plugin does."""
        self._library.replay_report(self._handle, bytes(path))

    def held_by_way(self, ways: int, rmid: int = 0, domain: int = 0) -> Sequence[int]:
        """Bytes held in each way of an L3."""
        return [self._library.hierarchy_held_in_way(self._handle, domain, rmid, way) for way in range(ways)]

    def places(self, sample: int) -> set[int]:
        """The places in a page whose lines are simulated."""
        places = self._library.sample_places(sample)
        return {place for place in range(64) if places >> place & 1}


@contextmanager
def model(library: ctypes.CDLL, geometry: Geometry, *, extra: Extra | None = None, **sizes: int) -> Iterator[Model]:
    """A model for a while; see :class:`Model`."""
    made = Model(library, geometry, **sizes, extra=extra)
    try:
        yield made
    finally:
        made.close()
