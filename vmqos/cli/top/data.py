# SPDX-License-Identifier: Apache-2.0
"""What ``vmqos top`` shows: one look at every VM, sorted and searched. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmqos.cli import exceptions
from vmqos.cli.show.freshness import Freshness
from vmqos.cli.show.fullness import Fill
from vmqos.cli.show.safe_text import neutralise
from vmqos.local_api import contract
from vmqos.telemetry import Missing, Reading

UNKNOWN = Reading.none(Missing.NOT_MONITORED)
_FRESH = Freshness()

NEARLY_ALL = 0.99
"""Of the time: a share of the processor's counters from which on nothing is said of estimates."""


@dataclass(frozen=True, slots=True)
class Row:
    """One VM.

    :ivar name: what to call it, safe for a terminal and no other VM's; empty where only the UUID is known.
    :ivar instance_name: its name in Nova, as it is, and ``libvirt_name`` the one in libvirt; empty where unknown.
    :ivar flavor: its flavor's name, as it is; empty where unknown or where there is none.
    :ivar state: the agent's; empty where there is no agent.
    :ivar ways: how many L3 ways it has, by cache id.
    :ivar code_ways: how many of them are for code, where code and data are apart; ``data_ways`` likewise.
    :ivar l2_ways: how many L2 ways it has, by the L2's id.
    :ivar ways_requested: how many it asks for; ``None`` where it asks for nothing, or where that is not known.
    :ivar l2_ways_requested: how many L2 ways it asks for; ``None`` as for ``ways_requested``.
    :ivar bandwidth: the memory bandwidth that it may have, by cache id, in ``bandwidth_unit``.
    :ivar is_limited: whether its flavor asks for a limit of memory bandwidth.
    :ivar allocated: the bytes of its ways on all caches; ``None`` without a promise.
    :ivar occupancy: bytes that it holds of the caches.
    :ivar fills: what it holds of each cache where it was promised ways.
    :ivar total: bytes a second to and from memory; ``local`` and ``remote`` are its parts.
    :ivar measured: the last bandwidth that was measured, as ``total``, ``local`` and ``remote``; empty where it is
        that of now, or where there was none.
    :ivar measured_age: how many seconds ago that was; ``None`` without one.
    :ivar ipc: instructions per cycle.
    :ivar misses: last-level cache misses a second.
    :ivar share: of the time for which the VM's tasks ran, the share for which both were counted, 0 to 1; ``None`` where
        they did not run, or nothing counts them.
    :ivar watts: what the CPU cores use for it, where packages count that.
    :ivar stalls: the share of its cycles that were spent waiting for loads which the last-level cache did not have,
        0 to 1, where packages count that.
    """

    uuid: str
    name: str = ""
    instance_name: str = ""
    libvirt_name: str = ""
    flavor: str = ""
    state: str = ""
    reason: str = ""
    policy: str | None = None
    ways: Mapping[int, int] = field(default_factory=dict)
    ways_requested: int | None = None
    code_ways: Mapping[int, int] = field(default_factory=dict)
    data_ways: Mapping[int, int] = field(default_factory=dict)
    l2_ways: Mapping[int, int] = field(default_factory=dict)
    l2_ways_requested: int | None = None
    bandwidth: Mapping[str, int] = field(default_factory=dict)
    bandwidth_unit: str | None = None
    is_limited: bool = False
    allocated: int | None = None
    occupancy: Reading = UNKNOWN
    fills: tuple[Fill, ...] = ()
    total: Reading = UNKNOWN
    local: Reading = UNKNOWN
    remote: Reading = UNKNOWN
    measured: Mapping[str, float | None] = field(default_factory=dict)
    measured_age: float | None = None
    ipc: Reading = UNKNOWN
    misses: Reading = UNKNOWN
    share: float | None = None
    watts: Reading = UNKNOWN
    stalls: Reading = UNKNOWN

    @property
    def title(self) -> str:
        """What to call it."""
        return self.name or neutralise(self.uuid)

    @property
    def is_estimate(self) -> bool:
        """Whether the instructions per cycle and the misses are estimates: others had the counters for a part."""
        return self.share is not None and self.share < NEARLY_ALL

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names that people may use for it, as they are."""
        return tuple(filter(None, (self.instance_name, self.libvirt_name)))


@dataclass(frozen=True, slots=True)
class Frame:
    """One look.

    :ivar taken_at: seconds since 1970.
    :ivar interval: seconds between two looks at the counters; 0 where the agent reads them only when a client asks.
    :ivar source: ``agent`` or ``resctrl``.
    :ivar cache_ways: how many ways each cache has.
    :ivar cache_bytes: the size of each cache.
    :ivar rest: bytes a second of what is in no VM's group; ``None`` where that is not known.
    :ivar notes: what is not shown, and why.
    :ivar hostname: the host's name; empty where it is not known.
    :ivar detail: all that the agent knows of the VM that the operator looks at; ``None`` where it tells nothing.
    :ivar detail_problem: why it tells nothing of that VM; empty where it does, or was not asked.
    :ivar age: seconds since the counters were read; ``None`` where the agent does not tell.
    :ivar freshness: what of the agent's knowledge is old.
    """

    taken_at: float
    interval: float
    source: str
    rows: tuple[Row, ...]
    cache_ways: Mapping[int, int] = field(default_factory=dict)
    cache_bytes: Mapping[int, int] = field(default_factory=dict)
    rest: float | None = None
    notes: tuple[str, ...] = ()
    age: float | None = None
    freshness: Freshness = _FRESH
    hostname: str = ""
    detail: contract.DetailedVm | None = None
    detail_problem: str = ""

    @property
    def is_first(self) -> bool:
        """Whether there are VMs whose bandwidth or events take another look."""
        return any(
            reading.missing is Missing.NO_PREVIOUS for row in self.rows for reading in (row.total, row.local, row.ipc)
        )


_URGENCY = ("degraded", "pending", "kept", "none", "")

SORT_KEYS: Mapping[str, Callable[[Row], Any]] = {
    "occupancy": lambda row: row.occupancy.value,
    "total": lambda row: row.total.value,
    "local": lambda row: row.local.value,
    "remote": lambda row: row.remote.value,
    "ipc": lambda row: row.ipc.value,
    "misses": lambda row: row.misses.value,
    "watts": lambda row: row.watts.value,
    "stalls": lambda row: row.stalls.value,
    "ways": lambda row: max(row.ways.values(), default=0),
    "state": lambda row: _URGENCY.index(row.state) if row.state in _URGENCY else len(_URGENCY),
    "name": lambda row: row.title.casefold(),
}
"""What rows can be sorted by."""

_ASCENDING = {"name", "state"}


@dataclass(frozen=True, slots=True)
class Order:
    """What rows are sorted by.

    :ivar key: one of :data:`SORT_KEYS`.
    :ivar reverse: the other way round.
    """

    key: str = "occupancy"
    reverse: bool = False


def is_troubled(row: Row) -> bool:
    """Whether the VM lacks what it was promised."""
    return row.state in ("pending", "degraded")


def choose(rows: Iterable[Row], wanted: Sequence[str], order: Order) -> list[Row]:
    """The VMs that the operator named by UUID, by its beginning, or by a name, in order; all if none was named."""
    return sort((row for row in rows if not wanted or any(_is_called(row, word) for word in wanted)), order)


def sort(rows: Iterable[Row], order: Order) -> list[Row]:
    """Numbers from the greatest down, names and states up; what has no value is last either way."""
    value = SORT_KEYS[order.key]
    by_name = sorted(rows, key=lambda row: (row.title.casefold(), row.uuid))
    known = [row for row in by_name if value(row) is not None]
    known.sort(key=value, reverse=(order.key not in _ASCENDING) != order.reverse)
    return known + [row for row in by_name if value(row) is None]


def search(rows: Iterable[Row], text: str) -> list[Row]:
    """The VMs that have the text in a name, in the UUID or in the flavor's name, whatever the case; all if empty."""
    key = text.casefold()
    return [
        row for row in rows if any(key in known.casefold() for known in (row.name, *row.aliases, row.uuid, row.flavor))
    ]


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over VMs.

    :ivar value: the sum over those that have a number; ``None`` where none has.
    :ivar left_out: how many have no number.
    """

    value: float | None
    left_out: int


def total(readings: Iterable[Reading]) -> Total:
    """The sum of the readings that have a number."""
    every = list(readings)
    known = [reading.value for reading in every if reading.value is not None]
    return Total(sum(known) if known else None, len(every) - len(known))


def promises(rows: Iterable[Row]) -> tuple[int, int]:
    """How many promises are kept, and how many were made."""
    states = [row.state for row in rows]
    kept = states.count("kept")
    return kept, kept + states.count("pending") + states.count("degraded")


def require(rows: Iterable[Row], wanted: Iterable[str]) -> None:
    """Check that each word names a VM.

    :raises vmqos.cli.exceptions.NoSuchVm: for the first that does not.
    """
    known = tuple(rows)
    for word in wanted:
        if not any(_is_called(row, word) for row in known):
            raise exceptions.NoSuchVm(wanted=neutralise(word))


def _is_called(row: Row, word: str) -> bool:
    return word in row.aliases or (bool(word) and row.uuid.lower().startswith(word.lower()))


FIELDS: Mapping[str, Callable[[Row], Any]] = {
    "uuid": lambda row: row.uuid,
    "instance_name": lambda row: row.instance_name,
    "name": lambda row: row.libvirt_name,
    "state": lambda row: row.state,
    "reason": lambda row: row.reason,
    "policy": lambda row: row.policy,
    "ways": lambda row: _by_text(row.ways),
    "ways_requested": lambda row: row.ways_requested,
    "allocated_bytes": lambda row: row.allocated,
    "occupancy_bytes": lambda row: row.occupancy.value,
    "total_bytes_per_second": lambda row: row.total.value,
    "local_bytes_per_second": lambda row: row.local.value,
    "remote_bytes_per_second": lambda row: row.remote.value,
    "instructions_per_cycle": lambda row: row.ipc.value,
    "llc_misses_per_second": lambda row: row.misses.value,
    "missing": lambda row: dict(_missing(row)),
    "code_ways": lambda row: _by_text(row.code_ways),
    "data_ways": lambda row: _by_text(row.data_ways),
    "l2_ways": lambda row: _by_text(row.l2_ways),
    "l2_ways_requested": lambda row: row.l2_ways_requested,
    "bandwidth_limit": lambda row: dict(row.bandwidth),
    "bandwidth_limit_unit": lambda row: row.bandwidth_unit,
    "occupancy_bytes_by_cache": lambda row: {str(one.cache): one.held for one in row.fills},
    "allocated_bytes_by_cache": lambda row: {str(one.cache): one.granted for one in row.fills},
    "measured_bytes_per_second": lambda row: dict(row.measured),
    "measured_age_seconds": lambda row: row.measured_age,
    "core_watts": lambda row: row.watts.value,
    "llc_miss_stalls": lambda row: row.stalls.value,
    "hardware_events_share": lambda row: row.share,
}
"""The fields of a row for programs, named as in the agent's API where it has them."""


def _by_text(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(cache): count for cache, count in counts.items()}


def _missing(row: Row) -> Iterator[tuple[str, str]]:
    readings = {
        "occupancy_bytes": row.occupancy,
        "total_bytes_per_second": row.total,
        "local_bytes_per_second": row.local,
        "remote_bytes_per_second": row.remote,
        "instructions_per_cycle": row.ipc,
        "llc_misses_per_second": row.misses,
        "core_watts": row.watts,
        "llc_miss_stalls": row.stalls,
    }
    for name, reading in readings.items():
        if reading.missing is not None:
            yield name, reading.missing.value


def as_json(frame: Frame, rows: Sequence[Row]) -> dict[str, Any]:
    """A look for programs."""
    return {
        "taken_at": frame.taken_at,
        "interval": frame.interval,
        "source": frame.source,
        "notes": list(frame.notes),
        "age_seconds": frame.age,
        "stale": list(frame.freshness.stale),
        "unserved": dict(frame.freshness.unserved),
        "vms": [{name: value(row) for name, value in FIELDS.items()} for row in rows],
    }


CSV_TITLES = ("taken_at", *FIELDS, "age_seconds")


def as_csv(frame: Frame, rows: Sequence[Row]) -> Iterator[list[Any]]:
    """A look at the VMs as lines of :data:`CSV_TITLES`, one a VM; a mapping is written as ``0:2 1:4``."""
    for row in rows:
        cells = (_cell(value(row)) for value in FIELDS.values())
        yield [f"{frame.taken_at:.3f}", *cells, "" if frame.age is None else f"{frame.age:.3f}"]


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping):
        return " ".join(f"{name}:{item}" for name, item in value.items())
    return neutralise(value) if isinstance(value, str) else value
