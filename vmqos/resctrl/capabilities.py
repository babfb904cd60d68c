# SPDX-License-Identifier: Apache-2.0
"""What this machine's resctrl can do: plain values, read from ``info/`` by :mod:`vmqos.resctrl.info`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vmqos.resctrl import exceptions
from vmqos.resctrl.bitmask import CapacityBitmask


@dataclass(frozen=True, slots=True)
class CacheResource:
    """A cache that resctrl can partition, one directory of ``info/`` such as ``L3`` or ``L2CODE``.

    :ivar name: the resource's name in schemata.
    :ivar num_closids: how many control groups it allows, the default group included.
    :ivar cbm_mask: every way of the cache.
    :ivar min_cbm_bits: the fewest ways a mask may have; 0 where the hardware takes an empty one (AMD).
    :ivar shareable_bits: the ways that other hardware (I/O, a GPU) fills too.
    :ivar sparse_masks: whether a mask may have gaps; ``False`` where the kernel does not say.
    :ivar cache_ids: the caches that are online, in ascending order.
    :ivar io_alloc: the ways that devices are confined to, by cache id (AMD's SDCIAE); empty where they are not,
        ``None`` where that can't be.
    :ivar filled_by_devices: the ways that devices fill too, and no mask of a group keeps them out of, by cache id.
    """

    name: str
    num_closids: int
    cbm_mask: CapacityBitmask
    min_cbm_bits: int
    shareable_bits: CapacityBitmask
    sparse_masks: bool
    cache_ids: tuple[int, ...]
    io_alloc: Mapping[int, CapacityBitmask] | None = None
    filled_by_devices: Mapping[int, CapacityBitmask] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        confined = self.io_alloc or {}
        filled = {cache: self.shareable_bits | confined.get(cache, CapacityBitmask()) for cache in self.cache_ids}
        object.__setattr__(self, "filled_by_devices", filled)

    @property
    def level(self) -> int:
        """The level of the cache: 2 or 3."""
        return int(self.name[1])

    @property
    def way_count(self) -> int:
        """How many ways the cache has."""
        return self.cbm_mask.count

    def check(self, mask: CapacityBitmask) -> None:
        """Refuse a mask that the kernel would refuse (``cbm_validate`` in the kernel's resctrl).

        :raises vmqos.resctrl.exceptions.IllegalBitmask: if ``mask`` leaves ``cbm_mask``, has fewer than
            ``min_cbm_bits`` ways, or has gaps where :attr:`sparse_masks` is ``False``.
        """
        if mask - self.cbm_mask:
            rule = f"the ways of this cache are {self.cbm_mask}"
        elif mask.count < self.min_cbm_bits:
            rule = f"a mask needs at least {self.min_cbm_bits} way{'' if self.min_cbm_bits == 1 else 's'}"
        elif not self.sparse_masks and not mask.is_contiguous:
            rule = "the ways of a mask must be neighbours on this machine"
        else:
            return
        raise exceptions.IllegalBitmask(mask=mask, resource=self.name, rule=rule)


EIGHTH_GBPS_IN_MBPS = 125


class BandwidthUnit(enum.Enum):
    """What a number in a line of schemata means for a throttle."""

    unlimited: int
    """The value of a group that is not throttled, and greater ones: ``MAX_MBA_BW``, ``MBA_MAX_MBPS`` and
    ``MAX_MBA_BW_AMD`` in the kernel's resctrl."""

    PERCENT = "percent", 100
    """Of the memory bandwidth; Intel's MBA and Arm's MPAM."""
    MBPS = "MBps", (1 << 32) - 1
    """MB/s, which the kernel sees to by itself, where resctrl is mounted with ``mba_MBps``."""
    EIGHTH_GBPS = "1/8 GB/s", 2048
    """Steps of 1/8 GB/s: AMD's MBA and SMBA (APM volume 2, "L3 Memory Bandwidth Enforcement")."""

    def __new__(cls, name: str, unlimited: int) -> BandwidthUnit:
        """A unit whose value is its name alone."""
        unit = object.__new__(cls)
        unit._value_, unit.unlimited = name, unlimited
        return unit

    @property
    def told_in(self) -> str:
        """What people are told limits in, whatever the unit of schemata is: ``%`` or ``MB/s``."""
        return "%" if self is BandwidthUnit.PERCENT else "MB/s"

    def told(self, value: int) -> int:
        """A value of schemata in that unit."""
        return value * EIGHTH_GBPS_IN_MBPS if self is BandwidthUnit.EIGHTH_GBPS else value

    def limit(self, value: int | None) -> int | None:
        """A value of schemata in that unit; ``None`` where it limits nothing, or where there is no value."""
        return None if value is None or value >= self.unlimited else self.told(value)

    def limits(self, values: Mapping[int, int]) -> dict[int, int]:
        """Those of a group's values that limit something, in that unit.

        :param values: of schemata, by cache id.
        """
        return {cache: self.told(value) for cache, value in values.items() if value < self.unlimited}


@dataclass(frozen=True, slots=True)
class BandwidthResource:
    """Memory bandwidth that resctrl can throttle, such as ``info/MB`` or ``info/SMBA``.

    :ivar name: the resource's name in schemata.
    :ivar num_closids: how many control groups it allows, the default group included.
    :ivar min_bandwidth: the smallest value: per cent, or 1/8 GB/s on AMD. In MB/s any value is taken.
    :ivar bandwidth_gran: the step that values are rounded up to, in the same unit.
    :ivar delay_linear: whether the throttling is linear in the value.
    :ivar cache_ids: the caches whose traffic is throttled, in ascending order.
    :ivar unit: what the values in schemata are.
    """

    name: str
    num_closids: int
    min_bandwidth: int
    bandwidth_gran: int
    delay_linear: bool
    cache_ids: tuple[int, ...]
    unit: BandwidthUnit = BandwidthUnit.PERCENT


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What ``info/L3_MON`` says.

    :ivar num_rmids: how many groups (control and monitoring together) can be monitored.
    :ivar events: the counters each group has, such as ``llc_occupancy`` and ``mbm_total_bytes``.
    :ivar max_threshold_occupancy: bytes under which a freed RMID leaves limbo.
    """

    num_rmids: int
    events: tuple[str, ...]
    max_threshold_occupancy: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Everything resctrl offers on this machine with this mount.

    The first three are what is read. The others follow from them, and are worked out once.

    :ivar caches: the partitionable caches by resource name (``L3``; with CDP ``L3CODE`` and ``L3DATA``).
    :ivar bandwidths: the throttles by resource name.
    :ivar monitoring: ``None`` where nothing can be monitored.
    :ivar l3: the L3 as one resource, also where CDP splits it; ``None`` where it can't be partitioned.
    :ivar l2: the L2 as one resource, also where CDP splits it; ``None`` where it can't be partitioned.
    :ivar split_levels: the levels in whose caches code and data have masks of their own (CDP).
    :ivar memory_bandwidth: the throttle of memory bandwidth; ``None`` where there is none. Its caches are the L3s.
    :ivar l3_caches: ids of the L3s that are online and have ways or bandwidth to give, in ascending order.
    :ivar num_closids: how many control groups can exist, the default group included: the smallest of all resources,
        which is the kernel's rule (``closid_init``); 1 where nothing can be allocated. Where devices are confined to
        some ways, these are the mask of the highest CLOSID, which no group can have then (``resctrl_io_alloc_closid``).
    """

    caches: Mapping[str, CacheResource] = field(default_factory=dict)
    bandwidths: Mapping[str, BandwidthResource] = field(default_factory=dict)
    monitoring: Monitoring | None = None
    l3: CacheResource | None = field(init=False, repr=False, compare=False)
    l2: CacheResource | None = field(init=False, repr=False, compare=False)
    split_levels: frozenset[int] = field(init=False, repr=False, compare=False)
    memory_bandwidth: BandwidthResource | None = field(init=False, repr=False, compare=False)
    l3_caches: tuple[int, ...] = field(init=False, repr=False, compare=False)
    num_closids: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        l3, l2 = (self._whole(level) for level in (3, 2))
        throttle = self.bandwidths.get("MB")
        closids = [resource.num_closids for resource in self.caches.values()]
        closids += [resource.num_closids for resource in self.bandwidths.values()]
        takes_closid = any(resource.io_alloc for resource in self.caches.values())
        found = l3 or throttle
        derived = {
            "l3": l3,
            "l2": l2,
            "split_levels": frozenset(level for level in (3, 2) if f"L{level}CODE" in self.caches),
            "memory_bandwidth": throttle,
            "l3_caches": found.cache_ids if found is not None else (),
            "num_closids": min(closids, default=1) - takes_closid,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _whole(self, level: int) -> CacheResource | None:
        """The caches of a level as one resource, also where CDP splits them."""
        code = self.caches.get(f"L{level}CODE")
        return replace(code, name=f"L{level}") if code is not None else self.caches.get(f"L{level}")
