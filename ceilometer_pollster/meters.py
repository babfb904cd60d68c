# SPDX-License-Identifier: Apache-2.0
"""The meters: what each is called, and where in a reading its volume is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vmqos.telemetry import Rates, VmReading

Volume = int | float | None


@dataclass(frozen=True, slots=True)
class Meter:
    """A meter of Ceilometer.

    :ivar name: the sample's name, and the entry point's: Ceilometer's Prometheus exporter forgets the series of a VM
        that is gone by the latter.
    :ivar kind: ``gauge`` is a value of now, ``cumulative`` only ever grows.
    :ivar volume: the volume of one VM; ``None`` where there is none, so that no sample is made.
    """

    name: str
    unit: str
    kind: Literal["gauge", "cumulative"]
    volume: Callable[[VmReading, Rates], Volume]


def _ways(vm: VmReading) -> Volume:
    """The promise is a number of ways on *every* cache that the VM may run on, so this is no sum.

    Caches differ where a class gets less of one because the pool is small there. What resctrl has is told: while ways
    are tried on a VM, these, as the agent tells them, too.
    """
    return min(vm.ways.values()) if vm.ways else None


_OCCUPANCY, _TOTAL, _LOCAL = "llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"

L3_CACHE = Meter("cpu_l3_cache", "B", "gauge", lambda vm, rates: vm.totals[_OCCUPANCY].value)
L3_CACHE_WAYS = Meter("cpu_l3_cache.ways", "way", "gauge", lambda vm, rates: _ways(vm))
L3_CACHE_ALLOCATED = Meter("cpu_l3_cache.allocated", "B", "gauge", lambda vm, rates: vm.allocated_bytes)
BANDWIDTH_TOTAL = Meter("memory.bandwidth.total", "B/s", "gauge", lambda vm, rates: rates.total.value)
BANDWIDTH_LOCAL = Meter("memory.bandwidth.local", "B/s", "gauge", lambda vm, rates: rates.local.value)
BANDWIDTH_REMOTE = Meter("memory.bandwidth.remote", "B/s", "gauge", lambda vm, rates: rates.remote.value)
TRAFFIC_TOTAL = Meter("memory.traffic.total", "B", "cumulative", lambda vm, rates: vm.totals[_TOTAL].value)
TRAFFIC_LOCAL = Meter("memory.traffic.local", "B", "cumulative", lambda vm, rates: vm.totals[_LOCAL].value)


@dataclass(frozen=True, slots=True)
class EventMeter:
    """A meter of what an instance executes: it only ever grows.

    :ivar name: the sample's name.
    :ivar event: which of the agent's hardware events its volume is.
    """

    name: str
    unit: str
    event: str
    kind: Literal["cumulative"] = "cumulative"

    @property
    def pollster(self) -> str:
        """The entry point's name, and so what polling.yaml calls it.

        Ceilometer has pollsters that are called as the samples are. They ask libvirt, have samples only where Nova
        turned libvirt's perf events on, and two pollsters of one name take each other's series away.
        """
        return f"vmqos.{self.name}"


CYCLES = EventMeter("perf.cpu.cycles", "cycle", "cycles")
INSTRUCTIONS = EventMeter("perf.instructions", "instruction", "instructions")
CACHE_REFERENCES = EventMeter("perf.cache.references", "cache_ref", "cache_references")
CACHE_MISSES = EventMeter("perf.cache.misses", "cache_miss", "cache_misses")

METERS = (
    L3_CACHE,
    L3_CACHE_WAYS,
    L3_CACHE_ALLOCATED,
    BANDWIDTH_TOTAL,
    BANDWIDTH_LOCAL,
    BANDWIDTH_REMOTE,
    TRAFFIC_TOTAL,
    TRAFFIC_LOCAL,
)
"""What is read from resctrl."""

EVENT_METERS = (CYCLES, INSTRUCTIONS, CACHE_REFERENCES, CACHE_MISSES)
"""What the agent is asked for: Ceilometer's own names of such samples, with the units that its reference has."""
