# SPDX-License-Identifier: Apache-2.0
"""The machine below resctrl: what stays the same, or keeps running, from one mount to the next."""

from __future__ import annotations

import time
from collections.abc import Callable

from vmqos.simulator.hardware.counters import Counters
from vmqos.simulator.hardware.package_counters import PackageCounters
from vmqos.simulator.hardware.profiles import Profile
from vmqos.simulator.hardware.registers import EVENT_CONFIGURATION, EVENTS, Registers
from vmqos.simulator.hardware.resources import resources_of
from vmqos.simulator.hardware.rmids import RmidAllocator
from vmqos.simulator.hardware.tasks import Membership, Processes
from vmqos.simulator.hardware.topology import Cache


class Hardware:
    """Caches, CPUs, RMIDs and counters of one machine.

    :param processes: where its tasks are looked up.
    :param clock: a monotonic clock in seconds.
    """

    def __init__(self, profile: Profile, processes: Processes, clock: Callable[[], float] = time.monotonic) -> None:
        self.profile = profile
        self.processes = processes
        self.clock = clock
        self.registers = Registers(profile)
        self.resources = resources_of(profile, self.registers)
        self.online = set(profile.topology.cpus)
        self.members = Membership(processes)
        self.threshold = profile.threshold
        monitoring = profile.monitoring
        self.counters = Counters(profile)
        self.package_counters = PackageCounters()
        self.sampled_at = clock()
        self.seconds_seen: dict[str, float] = {}
        """CPU time of what :mod:`vmqos.simulator.files.sampling` looked at last."""
        self.rmids = RmidAllocator(
            profile.num_rmids or 1,
            (part.id for part in profile.topology.counted),
            has_limbo=bool(monitoring and "llc_occupancy" in monitoring.events),
        )

    @property
    def l3_online(self) -> list[int]:
        """The ids of the L3 caches that have a CPU online, ascending."""
        return [cache.id for cache in self.profile.topology.l3 if self._is_online(cache)]

    @property
    def counted_online(self) -> list[int]:
        """The ids of what has counters of its own (:attr:`.Topology.counted`) and a CPU online, ascending."""
        return [part.id for part in self.profile.topology.counted if self._is_online(part)]

    def counted_of(self, cache: int) -> list[int]:
        """Those of one L3."""
        return [number for number in self.counted_online if self.profile.topology.l3_of(number).id == cache]

    def check_limbo(self) -> None:
        """Let RMIDs whose lines have drained leave limbo."""
        self.rmids.check(self.clock(), self._is_dirty)

    def event_configuration(self, event: str, domain: int) -> int:
        """Which traffic an AMD counter counts in an L3 cache: bits of ``QOS_EVT_CFG``."""
        return self.registers.value(3, domain, EVENT_CONFIGURATION + EVENTS.index(event))

    def configure_event(self, event: str, domain: int, value: int) -> None:
        """Choose which traffic it counts; what is chosen already is not written again (``mbm_config_write_domain``)."""
        if value != self.event_configuration(event, domain):
            self.registers.write(3, domain, EVENT_CONFIGURATION + EVENTS.index(event), value)

    def set_online(self, cpu: int, online: bool) -> None:
        """Switch a CPU on or off."""
        if online:
            self.online.add(cpu)
        else:
            self.online.discard(cpu)
        for resource in self.resources:
            resource.set_online(cpu, online)
        for part in self.profile.topology.counted:
            if cpu in part.cpus:
                self.rmids.set_online(part.id, bool(part.cpus & self.online))

    def _is_online(self, cache: Cache) -> bool:
        return not cache.cpus or bool(cache.cpus & self.online)

    def _is_dirty(self, rmid: int, domain: int) -> bool:
        return self.counters.occupancy(rmid, domain) >= self.threshold
