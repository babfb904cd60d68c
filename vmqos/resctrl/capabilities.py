# SPDX-License-Identifier: Apache-2.0
"""What this machine's resctrl can do: plain values, read from ``info/`` by :mod:`vmqos.resctrl.info`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """

    name: str
    num_closids: int
    cbm_mask: CapacityBitmask
    min_cbm_bits: int
    shareable_bits: CapacityBitmask
    sparse_masks: bool
    cache_ids: tuple[int, ...]

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
            rule = f"a mask needs at least {self.min_cbm_bits} way(s)"
        elif not self.sparse_masks and not mask.is_contiguous:
            rule = "the ways of a mask must be neighbours on this machine"
        else:
            return
        raise exceptions.IllegalBitmask(mask=mask, resource=self.name, rule=rule)


class BandwidthUnit(enum.Enum):
    """What a number in a line of schemata means for a throttle."""

    PERCENT = "percent"
    """Of the memory bandwidth; Intel's MBA and Arm's MPAM."""
    MBPS = "MBps"
    """MB/s, which the kernel sees to by itself, where resctrl is mounted with ``mba_MBps``."""
    EIGHTH_GBPS = "1/8 GB/s"
    """Steps of 1/8 GB/s: AMD's MBA and SMBA (APM volume 2, "L3 Memory Bandwidth Enforcement")."""


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

    :ivar caches: the partitionable caches by resource name (``L3``; with CDP ``L3CODE`` and ``L3DATA``).
    :ivar bandwidths: the throttles by resource name.
    :ivar monitoring: ``None`` where nothing can be monitored.
    """

    caches: Mapping[str, CacheResource] = field(default_factory=dict)
    bandwidths: Mapping[str, BandwidthResource] = field(default_factory=dict)
    monitoring: Monitoring | None = None

    @property
    def num_closids(self) -> int:
        """How many control groups can exist, the default group included: the smallest of all resources.

        The kernel's rule (``closid_init``); 1 where nothing can be allocated.
        """
        of_caches = (resource.num_closids for resource in self.caches.values())
        of_bandwidths = (resource.num_closids for resource in self.bandwidths.values())
        return min((*of_caches, *of_bandwidths), default=1)

    @property
    def l3(self) -> CacheResource | None:
        """The L3 as one resource; ``None`` where it is not partitionable or split by CDP."""
        return self.caches.get("L3")

    @property
    def l3_caches(self) -> tuple[int, ...]:
        """Ids of the L3s that are online, in ascending order; none where the L3 can't be partitioned."""
        return self.l3.cache_ids if self.l3 is not None else ()
