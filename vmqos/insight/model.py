# SPDX-License-Identifier: Apache-2.0
"""The words of insight: what was measured of VMs, what is known of the host, and verdicts."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Counts:
    """What a VM's tasks did, a second of the interval (hardware events).

    :ivar cycles: while they ran.
    :ivar references: to the last-level cache; ``misses`` are those that it lacked.
    """

    cycles: float
    instructions: float
    references: float
    misses: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One VM in one interval between two sweeps.

    :ivar time: of its end, in seconds of any clock that all VMs' samples share.
    :ivar occupancy: bytes held at its end, by cache id.
    :ivar bandwidth: bytes a second from and to memory; ``None`` where nothing counts them.
    :ivar counts: ``None`` where the host has no PMU for them.
    :ivar cpu_time: CPU seconds that its tasks ran, a second of the interval; ``None`` where that is not known.
    """

    time: float
    occupancy: Mapping[int, float]
    bandwidth: float | None
    counts: Counts | None = None
    cpu_time: float | None = None


History = Mapping[str, Sequence[Sample]]
"""By VM, the oldest sample first. VMs are sampled at the same times; one that came later has fewer."""


@dataclass(frozen=True, slots=True)
class Cache:
    """One L3.

    :ivar bandwidth: bytes a second that the memory behind it can give at most; ``None`` where that is not known.
    """

    size: int
    ways: int
    bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """What a VM's flavor asks for, as far as advice depends on it; 0 where it does not ask, or that is not known.

    :ivar ways: of the L3. A flavor that has ``code_ways`` and ``data_ways`` has none of these.
    :ivar is_shared: whether the ways are a cap within the pool that all fill; else the VM has them alone.
    :ivar percent: its limit of memory bandwidth, 1 to 100; or ``mbps``, in MB/s.
    """

    ways: int = 0
    code_ways: int = 0
    data_ways: int = 0
    is_shared: bool = False
    percent: int = 0
    mbps: int = 0


@dataclass(frozen=True, slots=True)
class Vm:
    """What is known of a VM beside its samples.

    :ivar flavor: its name, empty where there is none.
    :ivar masks: the ways that it may fill, a bit each, by cache id.
    :ivar vcpus: how many it has; 0 where that is not known.
    """

    flavor: str
    masks: Mapping[int, int]
    promise: Promise = Promise()
    vcpus: int = 0


class LimitedIn(enum.Enum):
    """What a host limits memory bandwidth in."""

    PERCENT = "%"
    MBPS = "MB/s"
    """The kernel's ``mba_MBps``, and AMD's steps of 1/8 GB/s."""
    NOTHING = None
    """It can't limit it."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PercentSteps:
    """The percentages to which a host can limit memory bandwidth; those of most processors, unless given.

    :ivar gran: they are multiples of it, 1 to 100; the kernel rounds up.
    :ivar least: the lowest, 1 to 100.
    """

    gran: int = 10
    least: int = 10


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of the host.

    :ivar memory_seconds: how long a line from memory takes while the memory is idle. Servers of the 2020s: 80 to 130
        ns.
    :ivar memory_cycles: the same in cycles.
    :ivar percent_steps: ``None`` where they are not known, or it does not limit in per cent.
    """

    caches: Mapping[int, Cache]
    vms: Mapping[str, Vm]
    memory_seconds: float = 100e-9
    memory_cycles: float = 250.0
    limited_in: LimitedIn = LimitedIn.UNKNOWN
    percent_steps: PercentSteps | None = None


class Use(enum.StrEnum):
    """What the cache is to a VM (:mod:`vmqos.insight.use`)."""

    FITS = "fits"
    """It holds what it needs."""
    STARVES = "starves"
    """More cache would spare it misses."""
    FILLS_WITHOUT_GAIN = "fills-without-gain"
    """What it holds spares it no misses."""
    UNKNOWN = "unknown"


class Cause(enum.StrEnum):
    """By what one VM slows another."""

    CACHE = "cache"
    BANDWIDTH = "memory-bandwidth"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Suffering:
    """How a VM is slower than it could be.

    :ivar slower: by which factor it takes more cycles for an instruction, 1.0: none. Without a PMU it is an estimate.
    :ivar beside: what it is compared with: ``own past`` or ``flavor``.
    """

    slower: float
    beside: str
    cause: Cause
    confidence: float
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """One VM slows another.

    :ivar since: when it began, by the samples' clock.
    :ivar until: when the culprit moved less again; ``None`` while it moves as much as from then on.
    :ivar slower: by which factor the victim needs more time for its work; without a PMU an estimate.
    :ivar taken: bytes that the victim lost to the culprit, of what it had held.
    :ivar confidence: 0 to 1.
    :ivar evidence: sentences with figures that an operator can check.
    :ivar advice: a command that ends it.
    """

    culprit: str
    victim: str
    cause: Cause
    since: float
    until: float | None
    slower: float
    taken: float
    confidence: float
    evidence: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class VmVerdict:
    """How a VM fares.

    :ivar sufferings: against its own past, and against others of its flavor; empty where it does not suffer.
    :ivar confidence: of ``use``, 0 to 1.
    :ivar evidence: for ``use``, and for what can't be said.
    :ivar advice: a command; empty where nothing is to be done.
    """

    vm: str
    use: Use
    confidence: float
    evidence: tuple[str, ...]
    advice: str = ""
    sufferings: tuple[Suffering, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Insight:
    """All verdicts on a host; pairs by descending confidence."""

    vms: Mapping[str, VmVerdict]
    pairs: Sequence[PairVerdict]
