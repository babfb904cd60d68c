# SPDX-License-Identifier: Apache-2.0
"""The machines that can be simulated: what their CPUs offer and which kernel they run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from vmqos.simulator.hardware.kernel_versions import LINUX_6_12, LINUX_7_2, Kernel
from vmqos.simulator.hardware.topology import Topology, regular

MIB = 1 << 20
ALL_EVENTS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
ENERGY_EVENTS = ("core_energy", "activity")
"""What Linux calls Intel's group *energy* of telemetry: joules and farads, with fractions."""
EXECUTION_EVENTS = (
    "stalls_llc_hit",
    "c1_res",
    "unhalted_core_cycles",
    "stalls_llc_miss",
    "c6_res",
    "unhalted_ref_cycles",
    "uops_retired",
)
"""What it calls the group *perf*: whole numbers."""


@dataclass(frozen=True, slots=True)
class CacheAllocation:
    """A cache whose ways can be allocated (Intel SDM volume 3, 18.19.4; CPUID leaf 0x10).

    :ivar level: 2 or 3.
    :ivar ways: the bits of a mask.
    :ivar num_closids: classes without CDP.
    :ivar min_cbm_bits: the fewest ways of a mask; 0 where an empty one is legal (AMD).
    :ivar shareable_bits: the ways that devices fill too.
    :ivar sparse: whether a mask may have gaps.
    :ivar cdp: whether code and data can have masks of their own.
    :ivar io_alloc: whether devices can be confined to the ways of the highest class (AMD's SDCIAE).
    """

    level: int
    ways: int
    num_closids: int
    min_cbm_bits: int = 1
    shareable_bits: int = 0
    sparse: bool = False
    cdp: bool = False
    io_alloc: bool = False

    @property
    def name(self) -> str:
        """The resource's name without CDP."""
        return f"L{self.level}"


@dataclass(frozen=True, slots=True)
class BandwidthAllocation:
    """Memory bandwidth that can be throttled.

    :ivar num_closids: classes.
    :ivar min: the smallest value, per cent or the hardware's unit.
    :ivar max: the greatest value, which is no throttling.
    :ivar granularity: values are rounded up to a multiple of it.
    :ivar linear: whether the throttling is linear in the value (Intel).
    :ivar throttle_mode: ``max`` or ``per-thread``; ``None`` where the kernel shows no such file (AMD).
    :ivar slow: whether it is the bandwidth of slow memory, such as CXL's (AMD's SMBA).
    :ivar width: to how many places Linux 6.12 pads a value.
    """

    num_closids: int
    min: int = 10
    max: int = 100
    granularity: int = 10
    linear: bool = True
    throttle_mode: str | None = "max"
    width: int = 3
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What the L3 can count.

    :ivar num_rmids: RMIDs, the default group's included.
    :ivar events: the counters, in the kernel's order.
    :ivar scale: bytes of one unit of the occupancy counter.
    :ivar threshold: bytes under which an RMID leaves limbo; ``None``: the kernel's default.
    :ivar threshold_limit: the most that may be set; ``None``: the size of the L3 (``x86_cache_size``).
    :ivar configurable: the events whose bandwidth sources can be chosen (AMD's BMEC) and their value at boot.
    """

    num_rmids: int
    events: tuple[str, ...] = ALL_EVENTS
    scale: int = 65536
    threshold: int | None = None
    threshold_limit: int | None = None
    configurable: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PackageMonitoring:
    """What a processor package counts for an RMID beyond its L3: Intel's Application Energy Telemetry (Linux 7.0).

    :ivar num_rmids: RMIDs that it counts for (``event_group::num_rmid`` in arch/x86/kernel/cpu/resctrl/intel_aet.c).
    :ivar events: the counters, in the kernel's order (``mon_event_all`` in fs/resctrl/monitor.c).
    """

    num_rmids: int
    events: tuple[str, ...] = (*ENERGY_EVENTS, *EXECUTION_EVENTS)


@dataclass(frozen=True, slots=True)
class Profile:
    """One machine.

    :ivar name: as on the command line.
    :ivar description: one line for people.
    :ivar packages: what its packages count; each has one L3.
    :ivar pseudo_lock: whether the CPU model is one whose prefetchers the kernel can switch off.
    """

    name: str
    description: str
    kernel: Kernel
    topology: Topology
    l3: CacheAllocation | None = None
    l2: CacheAllocation | None = None
    bandwidth: BandwidthAllocation | None = None
    slow_bandwidth: BandwidthAllocation | None = None
    monitoring: Monitoring | None = None
    packages: PackageMonitoring | None = None
    pseudo_lock: bool = False

    @property
    def can_allocate(self) -> bool:
        """Whether there is anything to allocate (``rdt_alloc_capable``)."""
        return bool(self.l3 or self.l2 or self.bandwidth or self.slow_bandwidth)

    @property
    def num_rmids(self) -> int:
        """How many groups of both kinds can be monitored: as many as the poorer of both kinds of counters has RMIDs."""
        counted = [one.num_rmids for one in (self.monitoring, self.packages) if one is not None]
        return min(counted, default=0)

    @property
    def threshold(self) -> int:
        """Bytes under which a freed RMID leaves limbo when the machine boots (``get_rdt_mon_resources``)."""
        if self.monitoring is None:
            return 0
        if self.monitoring.threshold is not None:
            return self.monitoring.threshold
        scale = self.monitoring.scale
        return self.threshold_limit // self.monitoring.num_rmids // scale * scale

    @property
    def threshold_limit(self) -> int:
        """The most bytes that ``max_threshold_occupancy`` takes (``resctrl_rmid_realloc_limit``)."""
        if self.monitoring is not None and self.monitoring.threshold_limit is not None:
            return self.monitoring.threshold_limit
        return self.topology.l3[0].size


_CASCADE_LAKE = Profile(
    "cascade-lake",
    "two sockets, 11 ways, two of them shared with I/O; MB by per cent, 8 classes; Linux 6.12",
    LINUX_6_12,
    regular(sockets=2, cores=12, threads=2, l3_size=17301504, l2_size=MIB, l3_ways=11, l2_ways=16),
    l3=CacheAllocation(3, 11, 16, shareable_bits=0x600, cdp=True),
    bandwidth=BandwidthAllocation(8),
    monitoring=Monitoring(192, scale=90112),
)
_BROADWELL = Profile(
    "broadwell",
    "two sockets, 20 ways, cache pseudo-locking, no memory bandwidth allocation; Linux 6.12",
    LINUX_6_12,
    regular(sockets=2, cores=10, threads=2, l3_size=25 * MIB, l2_size=MIB // 4, l3_ways=20, l2_ways=8),
    l3=CacheAllocation(3, 20, 16, shareable_bits=0xC0000, cdp=True),
    monitoring=Monitoring(160, scale=65536),
    pseudo_lock=True,
)
_SAPPHIRE_RAPIDS = Profile(
    "sapphire-rapids",
    "two sockets, 15 ways, masks with gaps, L2 of 16 ways and 8 classes; Linux 7.2",
    LINUX_7_2,
    regular(sockets=2, cores=16, threads=2, l3_size=45 * MIB, l2_size=2 * MIB, l3_ways=15, l2_ways=16),
    l3=CacheAllocation(3, 15, 15, shareable_bits=0x6000, sparse=True, cdp=True),
    l2=CacheAllocation(2, 16, 8, sparse=True, cdp=True),
    bandwidth=BandwidthAllocation(15),
    monitoring=Monitoring(256, scale=61440),
)
_SAPPHIRE_RAPIDS_SNC2 = replace(
    _SAPPHIRE_RAPIDS,
    name="sapphire-rapids-snc2",
    description="as sapphire-rapids, two sub-NUMA nodes a socket, which count apart, 128 RMIDs; Linux 7.2",
    topology=replace(_SAPPHIRE_RAPIDS.topology, nodes_per_l3=2),
    # The nodes share the socket's RMIDs, and the unit of its counter (get_rdt_mon_resources, rdt_get_l3_mon_config).
    monitoring=Monitoring(256 // 2, scale=61440 // 2),
)
_CLEARWATER_FOREST = Profile(
    "clearwater-forest",
    "two sockets of 288 cores, packages that count energy and stalls (AET), 576 RMIDs; Linux 7.2",
    LINUX_7_2,
    # An L2 is shared by the four cores of a module.
    regular(sockets=2, cores=72, threads=4, l3_size=576 * MIB, l2_size=4 * MIB, l3_ways=16, l2_ways=16),
    l3=CacheAllocation(3, 16, 15, sparse=True, cdp=True),
    l2=CacheAllocation(2, 16, 8, sparse=True, cdp=True),
    bandwidth=BandwidthAllocation(15),
    monitoring=Monitoring(576, scale=65536),
    packages=PackageMonitoring(576),
)
_AMD_BANDWIDTH = BandwidthAllocation(16, min=0, max=2048, granularity=1, linear=False, throttle_mode=None, width=4)
_AMD_EVENTS = (("mbm_total_bytes", 0x7F), ("mbm_local_bytes", 0x15))
_MILAN = Profile(
    "milan",
    "AMD, four L3 caches of 16 ways, empty masks and gaps, MB in 1/8 GB/s; Linux 6.12",
    LINUX_6_12,
    regular(sockets=4, cores=8, threads=2, l3_size=32 * MIB, l2_size=MIB // 2, l3_ways=16, l2_ways=8),
    l3=CacheAllocation(3, 16, 16, min_cbm_bits=0, sparse=True, cdp=True),
    bandwidth=_AMD_BANDWIDTH,
    monitoring=Monitoring(256, scale=64, configurable=_AMD_EVENTS),
)
_MILAN_TWO_SOCKETS = replace(
    _MILAN,
    name="milan-2s",
    description="AMD, two sockets of eight L3 caches of 16 ways each, otherwise as milan; Linux 6.12",
    topology=regular(sockets=16, cores=8, threads=2, l3_size=32 * MIB, l2_size=MIB // 2, l3_ways=16, l2_ways=8),
)
_GENOA = Profile(
    "genoa",
    "AMD, two sockets of twelve L3 caches each, SMBA beside MB, ways for devices (io_alloc); Linux 7.2",
    LINUX_7_2,
    regular(sockets=24, cores=8, threads=2, l3_size=32 * MIB, l2_size=MIB, l3_ways=16, l2_ways=8),
    l3=CacheAllocation(3, 16, 16, min_cbm_bits=0, sparse=True, cdp=True, io_alloc=True),
    bandwidth=_AMD_BANDWIDTH,
    slow_bandwidth=replace(_AMD_BANDWIDTH, slow=True),
    monitoring=Monitoring(256, scale=64, configurable=_AMD_EVENTS),
)
_MPAM = Profile(
    "mpam",
    "Arm, two sockets, 16 ways, all shared with I/O; no local bandwidth is counted; Linux 7.2",
    LINUX_7_2,
    regular(sockets=2, cores=64, threads=1, l3_size=64 * MIB, l2_size=MIB, l3_ways=16, l2_ways=8),
    # Devices whose traffic bears no class of its own have the default group's, and any way may be theirs
    # (mpam_resctrl_control_init in drivers/resctrl/mpam_resctrl.c).
    l3=CacheAllocation(3, 16, 32, shareable_bits=0xFFFF, sparse=True, cdp=True),
    bandwidth=BandwidthAllocation(32, min=1, granularity=1, throttle_mode=None),
    monitoring=Monitoring(64, events=("llc_occupancy", "mbm_total_bytes"), scale=1),
)
_MINIMAL = Profile(
    "minimal",
    "one socket, 8 ways, 4 classes, 8 RMIDs: everything runs out; Linux 6.12",
    LINUX_6_12,
    regular(sockets=1, cores=2, threads=1, l3_size=8 * MIB, l2_size=MIB // 4, l3_ways=16, l2_ways=4),
    l3=CacheAllocation(3, 8, 4),
    monitoring=Monitoring(8),
)

_EVERY = (
    _CASCADE_LAKE,
    _BROADWELL,
    _SAPPHIRE_RAPIDS,
    _SAPPHIRE_RAPIDS_SNC2,
    _CLEARWATER_FOREST,
    _MILAN,
    _MILAN_TWO_SOCKETS,
    _GENOA,
    _MPAM,
    _MINIMAL,
)
PROFILES = MappingProxyType({profile.name: profile for profile in _EVERY})
"""Every profile by name."""
