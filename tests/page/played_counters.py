# SPDX-License-Identifier: Apache-2.0
"""What the counters of a made-up host's VMs say, now and in the past: a wave for each VM."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

WAY = 1_572_864
FIRST_PID = 4000
MIB = 1 << 20


@dataclass
class PlayedCounters:
    """VMs, and what is counted of them.

    :ivar vms: as the agent's API tells them.
    :ivar missing: why events of a VM have no number, by UUID and event.
    :ivar remembers: seconds of history.
    :ivar minutes: how many minutes of the day it remembers; ``None`` for an agent that knows no minutes.
    :ivar away: minutes in which the agent did not run, by how many minutes ago they were.
    :ivar minutes_asked: for each question about minutes, the seconds and the VMs.
    :ivar unavailable: why the agent counts no hardware events; empty where it does.
    :ivar uncounted: why it does not count those of a VM, by UUID.
    :ivar packages: whether the processor's packages count for VMs.
    """

    vms: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, dict[str, str]] = field(default_factory=dict)
    remembers: int = 600
    minutes: int | None = 1440
    away: range = range(0)
    minutes_asked: list[tuple[float, list[str]]] = field(default_factory=list)
    unavailable: str = "the agent lacks CAP_PERFMON"
    uncounted: dict[str, str] = field(default_factory=dict)
    packages: bool = False

    def _allocated(self, vm: dict[str, Any]) -> int | None:
        return sum(int(mask, 16).bit_count() for mask in vm["masks"].values()) * WAY or None

    def _played(self, vm: dict[str, Any], when: float) -> tuple[int, float, float]:
        """Occupancy in bytes, total and local bandwidth: another wave for each VM."""
        number = vm["pid"] - FIRST_PID
        phase = when / (40 + 11 * (number % 7)) + number
        share = 0.55 + 0.4 * math.sin(phase) + 0.05 * math.sin(7 * phase)
        total = (0.2 + share) * 300 * MIB * (1 + number % 5) / (1 + number % 3)
        return int(share * (self._allocated(vm) or 4 * MIB)), total, total * (0.6 + 0.3 * math.sin(phase / 3))

    def _executed(self, vm: dict[str, Any], when: float) -> dict[str, float]:
        """Events a second: a VM that holds less of the cache misses more, and does less in each cycle."""
        held = self._played(vm, when)[0] / (self._allocated(vm) or 4 * MIB)
        instructions = 4e9 * (0.3 + held / 2)
        return {
            "cycles": 4e9,
            "instructions": instructions,
            "cache_references": 5e7,
            "cache_misses": 4e7 * (1.2 - held),
        }

    def _in_packages(self, vm: dict[str, Any], when: float) -> dict[str, float | None]:
        """What packages count a second: a VM that holds less of the cache waits more for memory."""
        held = self._played(vm, when)[0] / (self._allocated(vm) or 4 * MIB)
        return {
            "core_energy": 1.5 + held,
            "unhalted_core_cycles": 4e9,
            "uops_retired": 4e9 * (0.5 + held),
            "stalls_llc_hit": 4e9 * 0.05,
            "stalls_llc_miss": 4e9 * 0.3 * (1.2 - held),
        }

    def _series_of_packages(self, vm: dict[str, Any], times: list[float]) -> dict[str, list[float | None]]:
        if not self.packages:
            return {}
        counted = [self._in_packages(vm, when) for when in times]
        found: dict[str, list[float | None]] = {"core_watts": [one["core_energy"] for one in counted]}
        for name, event in {
            "uops_per_cycle": "uops_retired",
            "llc_hit_stalls": "stalls_llc_hit",
            "llc_miss_stalls": "stalls_llc_miss",
        }.items():
            found[name] = [
                counts / cycles
                if (counts := one.get(event)) is not None and (cycles := one["unhalted_core_cycles"])
                else None
                for one in counted
            ]
        return found

    def _executed_series(self, vm: dict[str, Any], times: list[float]) -> dict[str, list[float]]:
        if self.unavailable or vm["uuid"] in self.uncounted:
            return {}
        executed = [self._executed(vm, when) for when in times]
        return {
            "instructions_per_cycle": [one["instructions"] / one["cycles"] for one in executed],
            "instructions": [one["instructions"] for one in executed],
            "cache_misses": [one["cache_misses"] for one in executed],
            "counters_share": [self.counter_share] * len(times),
        }

    def _history(self, seconds: int, uuids: Collection[str] | None, wanted: Collection[str]) -> Any:
        now = int(time.time())
        times = [float(when) for when in range(now - seconds + 1, now + 1)]
        vms = {}
        for vm in (vm for vm in self.vms if uuids is None or vm["uuid"] in uuids):
            played = [self._played(vm, when) for when in times]
            missing = self.missing.get(vm["uuid"], {})
            series = {
                "llc_occupancy": [one[0] for one in played],
                "total": [one[1] for one in played],
                "local": [one[2] for one in played],
                "remote": [one[1] - one[2] for one in played],
            }
            names = {"llc_occupancy": ["llc_occupancy"], "mbm_total_bytes": ["total", "local", "remote"]}
            for name in (name for event in missing for name in names.get(event, [])):
                series[name] = [None] * len(times)
            if not series.keys() >= set(wanted):
                series |= self._executed_series(vm, times) | self._series_of_packages(vm, times)
            vms[vm["uuid"]] = {name: values for name, values in series.items() if name in wanted}
        return {"interval": 1.0, "times": times, "vms": vms}

    def _minutes(self, seconds: float, uuids: list[str]) -> Any:
        self.minutes_asked.append((seconds, uuids))
        now = time.time()
        running = int(now) // 60
        times = [
            60 * (running - ago)
            for ago in range(self.minutes or 0, 0, -1)
            if 60 * (running - ago) >= now - seconds and ago not in self.away
        ]
        vms = {}
        for vm in (vm for vm in self.vms if vm["uuid"] in uuids):
            missing = self.missing.get(vm["uuid"], {})
            names = {"llc_occupancy": "llc_occupancy"} | dict.fromkeys(("total", "local", "remote"), "mbm_total_bytes")
            vms[vm["uuid"]] = {
                name: self._statistics(vm, name, times) if event not in missing else _nothing(len(times))
                for name, event in names.items()
            }
            begins = [float(begin) for begin in times]
            further = {**self._executed_series(vm, begins), **self._series_of_packages(vm, begins)}
            for name, values in further.items():
                spread = 0.0 if name == "counters_share" else 0.1
                vms[vm["uuid"]][name] = {
                    "least": [None if value is None else (1 - spread) * value for value in values],
                    "mean": list(values),
                    "greatest": [None if value is None else (1 + spread) * value for value in values],
                }
        return {"resolution": 60, "times": times, "vms": vms}

    def _statistics(self, vm: dict[str, Any], name: str, times: list[int]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {"least": [], "mean": [], "greatest": []}
        for begin in times:
            looks = [self._played(vm, begin + second) for second in range(0, 60, 10)]
            values = [
                {"llc_occupancy": held, "total": total, "local": local, "remote": total - local}[name]
                for held, total, local in looks
            ]
            found["least"].append(min(values))
            found["mean"].append(sum(values) / len(values))
            found["greatest"].append(max(values))
        return found


def _nothing(length: int) -> dict[str, list[float | None]]:
    return {name: [None] * length for name in ("least", "mean", "greatest")}
