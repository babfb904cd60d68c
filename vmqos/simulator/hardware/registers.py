# SPDX-License-Identifier: Apache-2.0
"""The model-specific registers by which resctrl tells the hardware what each class may have.

Each cache has its own set, which every CPU of it reads and writes. Only the registers of allocation and of the
choice of events are modelled: which class a CPU runs at a moment (``IA32_PQR_ASSOC``) is the scheduler's affair.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass

from vmqos.simulator.hardware.profiles import BandwidthAllocation, CacheAllocation, Profile
from vmqos.simulator.kernel.numbers import refusal

L3_CONFIGURATION = 0xC81
"""``IA32_L3_QOS_CFG``: bit 0 switches CDP on (Intel SDM volume 3, 18.19.5)."""
L2_CONFIGURATION = 0xC82
"""``IA32_L2_QOS_CFG``."""
L3_MASK = 0xC90
"""``IA32_L3_MASK_0``, one register a class; with CDP, one for data and one for code (SDM, AMD APM volume 2, 19.4)."""
L2_MASK = 0xD10
"""``IA32_L2_MASK_0``."""
INTEL_BANDWIDTH = 0xD50
"""``IA32_L2_QOS_Ext_BW_Thrtl_0``: by how many per cent a class is delayed."""
AMD_BANDWIDTH = 0xC000_0200
"""``L3QOS_BW_CONTROL_0``: how much a class may have, in units of 1/8 GB/s; bit 11 is no limit."""
AMD_SLOW_BANDWIDTH = 0xC000_0280
"""``L3QOS_SLOW_BW_CONTROL_0``: how much a class may have of the memory behind a CXL device, in units of 1/8 GB/s
(``MSR_IA32_SMBA_BW_BASE``)."""
L3_EXTENDED_CONFIGURATION = 0xC000_03FF
"""``L3_QOS_EXT_CFG``: bit 1 confines devices to the ways of the highest class (``MSR_IA32_L3_QOS_EXT_CFG``)."""
EVENT_CONFIGURATION = 0xC000_0400
"""``QOS_EVT_CFG_0``: which traffic ``mbm_total_bytes`` counts; the next one is that of ``mbm_local_bytes``."""
EVENTS = ("mbm_total_bytes", "mbm_local_bytes")
"""The events that have such a register, in the registers' order."""


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    """One write to a register.

    :ivar level: 2 or 3: the level of the cache whose register it is.
    :ivar cache: the cache's id.
    :ivar register: the register's number.
    """

    level: int
    cache: int
    register: int
    value: int


class Registers:
    """The registers of every cache of a machine, at power-on with every way and all bandwidth for every class."""

    def __init__(self, profile: Profile) -> None:
        self._topology = profile.topology
        self._values: dict[tuple[int, int], dict[int, int]] = {}
        self._watchers: list[list[RegisterWrite]] = []
        for level in (2, 3):
            for cache in self._topology.caches(level):
                self._values[level, cache.id] = dict(_at_power_on(profile, level))

    def write(self, level: int, cache: int, register: int, value: int) -> None:
        """Set a register.

        :raises KeyError: if there is no such cache.
        """
        self._values[level, cache][register] = value
        for watcher in self._watchers:
            watcher.append(RegisterWrite(level, cache, register, value))

    def read(self, cpu: int, register: int) -> int:
        """What ``rdmsr`` says on a CPU.

        :raises OSError: ``EIO``, as ``/dev/cpu/N/msr`` says it, if the CPU has no such register.
        """
        for (level, number), values in self._values.items():
            if register in values and any(
                cache.id == number and cpu in cache.cpus for cache in self._topology.caches(level)
            ):
                return values[register]
        raise refusal(errno.EIO)

    def value(self, level: int, cache: int, register: int) -> int:
        """What is in a register of a cache.

        :raises KeyError: if there is no such cache or register.
        """
        return self._values[level, cache][register]

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[RegisterWrite]]:
        """The writes that are made while it lasts, in their order."""
        writes: list[RegisterWrite] = []
        self._watchers.append(writes)
        try:
            yield writes
        finally:
            self._watchers.remove(writes)


def mask_register(level: int, index: int) -> int:
    """The register with a class's mask.

    :param index: the class; with CDP twice that, plus 1 for code (``resctrl_get_config_index``).
    """
    return (L3_MASK if level == 3 else L2_MASK) + index


def bandwidth_register(allocation: BandwidthAllocation, closid: int) -> int:
    """The register with a class's bandwidth."""
    if allocation.linear:
        return INTEL_BANDWIDTH + closid
    return (AMD_SLOW_BANDWIDTH if allocation.slow else AMD_BANDWIDTH) + closid


def bandwidth_content(allocation: BandwidthAllocation, value: int) -> int:
    """What a bandwidth is in its register: Intel's says how much is held back (``delay_bw_map``)."""
    return allocation.max - value if allocation.linear else value


def _at_power_on(profile: Profile, level: int) -> Iterator[tuple[int, int]]:
    cache = profile.l3 if level == 3 else profile.l2
    if cache is not None:
        yield from _of_cache(cache)
    if level == 2:
        return
    for bandwidth in (profile.bandwidth, profile.slow_bandwidth):
        if bandwidth is None:
            continue
        for closid in range(bandwidth.num_closids):
            yield bandwidth_register(bandwidth, closid), bandwidth_content(bandwidth, bandwidth.max)
    for event, value in profile.monitoring.configurable if profile.monitoring else ():
        yield EVENT_CONFIGURATION + EVENTS.index(event), value


def _of_cache(cache: CacheAllocation) -> Iterator[tuple[int, int]]:
    for closid in range(cache.num_closids):
        yield mask_register(cache.level, closid), (1 << cache.ways) - 1
    if cache.cdp:
        yield L3_CONFIGURATION if cache.level == 3 else L2_CONFIGURATION, 0
    if cache.io_alloc:
        yield L3_EXTENDED_CONFIGURATION, 0
