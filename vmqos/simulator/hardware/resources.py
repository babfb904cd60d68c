# SPDX-License-Identifier: Apache-2.0
"""What can be allocated: resources, their domains, and the schemata lines they appear as."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from vmqos.simulator.hardware.options import MountOptions
from vmqos.simulator.hardware.profiles import BandwidthAllocation, CacheAllocation, Profile
from vmqos.simulator.hardware.registers import (
    L2_CONFIGURATION,
    L3_CONFIGURATION,
    L3_EXTENDED_CONFIGURATION,
    Registers,
    bandwidth_content,
    bandwidth_register,
    mask_register,
)
from vmqos.simulator.hardware.topology import Cache

UNLIMITED_MBPS = 0xFFFF_FFFF
"""A class without a limit under ``mba_MBps`` (``MBA_MAX_MBPS``)."""


class Use(Enum):
    """What a mask is for; the value is the suffix of the resource's name."""

    BOTH = ""
    CODE = "CODE"
    DATA = "DATA"

    @property
    def peer(self) -> Use:
        """The other half under CDP."""
        return {Use.CODE: Use.DATA, Use.DATA: Use.CODE}.get(self, Use.BOTH)


@dataclass(slots=True)
class LockedRegion:
    """A pseudo-locked part of a cache.

    :ivar device_open: a process holds ``/dev/pseudo_lock/…`` open, so that rmdir leaves the region.
    """

    schema: Schema
    domain: Domain
    mask: int
    device_open: bool = False


@dataclass(slots=True)
class Domain:
    """One instance of a resource: a cache and what each class may have of it.

    :ivar cpus: the CPUs that are online.
    :ivar values: the control value by class and use.
    :ivar mbps: the limit by class where the software controller is on.
    :ivar staged: values of the write in progress, by use.
    """

    cache: Cache
    cpus: set[int]
    values: dict[tuple[int, Use], int] = field(default_factory=dict)
    mbps: dict[int, int] = field(default_factory=dict)
    staged: dict[Use, int] = field(default_factory=dict)
    region: LockedRegion | None = None

    @property
    def id(self) -> int:
        """The cache's id."""
        return self.cache.id


class Resource:
    """One kind of thing to allocate, with the domains that are online, in the order of their ids.

    :param registers: where the values go: the kernel keeps a copy of its own, :attr:`Domain.values`.
    """

    def __init__(
        self,
        name: str,
        allocation: CacheAllocation | BandwidthAllocation,
        caches: Iterable[Cache],
        registers: Registers,
    ) -> None:
        self.name = name
        self.allocation = allocation
        self.caches = tuple(caches)
        self._registers = registers
        self.io_alloc = False
        """Whether devices are confined to the ways of the highest class."""
        self.domains: list[Domain] = []
        for cache in self.caches:
            self.domains.append(Domain(cache, set(cache.cpus)))

    @property
    def cache(self) -> CacheAllocation | None:
        """The allocation if it is of ways, not of bandwidth."""
        return self.allocation if isinstance(self.allocation, CacheAllocation) else None

    @property
    def default(self) -> int:
        """The value of a class before any is written to it: everything."""
        if isinstance(self.allocation, CacheAllocation):
            return (1 << self.allocation.ways) - 1
        return self.allocation.max

    def value(self, domain: Domain, closid: int, use: Use) -> int:
        """The control value in force (``resctrl_arch_get_config``)."""
        return domain.values.get((closid, use), self.default)

    def apply_staged(self, closid: int) -> None:
        """Put the staged values of every domain in force for one class (``resctrl_arch_update_domains``).

        What is in force already is not written again.
        """
        for domain in self.domains:
            for use, value in domain.staged.items():
                if value != self.value(domain, closid, use):
                    domain.values[closid, use] = value
                    self._write(domain, _index(closid, use), value)

    def clear_staged(self) -> None:
        """Forget the staged values."""
        for domain in self.domains:
            domain.staged.clear()

    def reset(self) -> None:
        """Give every class everything, as umount does (``resctrl_arch_reset_all_ctrls``)."""
        for domain in self.domains:
            self._reset(domain)

    def set_io_alloc(self, enabled: bool) -> None:
        """Confine devices to the ways of the highest class, or no longer (``resctrl_arch_io_alloc_enable``)."""
        self.io_alloc = enabled
        for domain in self.domains:
            self._registers.write(self._level, domain.id, L3_EXTENDED_CONFIGURATION, enabled << 1)

    def set_cdp(self, enabled: bool) -> None:
        """Let code and data of a cache have masks of their own, or one again (``set_cache_qos_cfg``)."""
        register = L3_CONFIGURATION if self.name == "L3" else L2_CONFIGURATION
        for domain in self.domains:
            self._registers.write(self._level, domain.id, register, int(enabled))

    def set_online(self, cpu: int, online: bool) -> None:
        """Add or remove a CPU; a domain exists while it has one."""
        for cache in self.caches:
            if cpu not in cache.cpus:
                continue
            domain = next((domain for domain in self.domains if domain.cache is cache), None)
            if online and domain is None:
                domain = Domain(cache, {cpu})
                self._reset(domain)
                self.domains.append(domain)
                self.domains.sort(key=lambda domain: domain.id)
            elif domain is not None and online:
                domain.cpus.add(cpu)
            elif domain is not None:
                domain.cpus.discard(cpu)
                if not domain.cpus:
                    self.domains.remove(domain)

    @property
    def _level(self) -> int:
        return self.allocation.level if isinstance(self.allocation, CacheAllocation) else 3

    def _reset(self, domain: Domain) -> None:
        domain.values.clear()
        domain.mbps.clear()
        domain.staged.clear()
        for index in range(self.allocation.num_closids):
            self._write(domain, index, self.default)

    def _write(self, domain: Domain, index: int, value: int) -> None:
        if isinstance(self.allocation, CacheAllocation):
            register = mask_register(self._level, index)
        else:
            register = bandwidth_register(self.allocation, index)
            value = bandwidth_content(self.allocation, value)
        self._registers.write(self._level, domain.id, register, value)


@dataclass(frozen=True, slots=True)
class Schema:
    """One line of the schemata file.

    :ivar name: the line's name.
    :ivar num_closids: how many classes it can serve.
    :ivar software_control: the values are MB/s kept by software.
    """

    name: str
    resource: Resource
    use: Use
    num_closids: int
    software_control: bool = False


def resources_of(profile: Profile, registers: Registers) -> list[Resource]:
    """The resources of a machine in the kernel's order."""
    found = []
    if profile.l3:
        found.append(Resource("L3", profile.l3, profile.topology.l3, registers))
    if profile.l2:
        found.append(Resource("L2", profile.l2, profile.topology.l2, registers))
    if profile.bandwidth:
        found.append(Resource("MB", profile.bandwidth, profile.topology.l3, registers))
    if profile.slow_bandwidth:
        found.append(Resource("SMBA", profile.slow_bandwidth, profile.topology.l3, registers))
    return found


def schemas_of(resources: Iterable[Resource], options: MountOptions) -> list[Schema]:
    """The lines of a mount, the last resource first (``schemata_list_create``)."""
    schemas: list[Schema] = []
    for resource in resources:
        closids = resource.allocation.num_closids
        if resource.cache and cdp_enabled(resource, options):
            for use in (Use.CODE, Use.DATA):
                schemas.insert(0, Schema(resource.name + use.value, resource, use, closids // 2))
        else:
            controlled = resource.cache is None and options.mba_mbps
            schemas.insert(0, Schema(resource.name, resource, Use.BOTH, closids, controlled))
    return schemas


def _index(closid: int, use: Use) -> int:
    """Which of a resource's registers has a class's value (``resctrl_get_config_index``)."""
    return closid if use is Use.BOTH else 2 * closid + (use is Use.CODE)


def cdp_enabled(resource: Resource, options: MountOptions) -> bool:
    """Whether code and data have masks of their own with this mount."""
    return {"L3": options.cdp, "L2": options.cdpl2}.get(resource.name, False)


def name_width(schemas: Iterable[Schema]) -> int:
    """To how many characters names are padded; room is kept for a CDP suffix that could be (``schemata_list_add``)."""
    widths = []
    for schema in schemas:
        cache = schema.resource.cache
        spare = len("CODE") if cache and cache.cdp and schema.use is Use.BOTH else 0
        widths.append(len(schema.name) + spare)
    return max(widths, default=0)
