# SPDX-License-Identifier: Apache-2.0
"""The machine below resctrl: what stays the same, or keeps running, from one mount to the next."""

from __future__ import annotations

import time
from collections.abc import Callable

from vmqos.simulator.hardware.counters import Counters
from vmqos.simulator.hardware.profiles import Profile
from vmqos.simulator.hardware.registers import EVENT_CONFIGURATION, EVENTS, Registers
from vmqos.simulator.hardware.resources import resources_of
from vmqos.simulator.hardware.rmids import RmidAllocator
from vmqos.simulator.hardware.tasks import Membership, Processes


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
        self.sampled_at = clock()
        self.seconds_seen: dict[str, float] = {}
        """CPU time of what :mod:`vmqos.simulator.files.sampling` looked at last."""
        self.rmids = RmidAllocator(
            monitoring.num_rmids if monitoring else 1,
            (cache.id for cache in profile.topology.l3),
            has_limbo=bool(monitoring and "llc_occupancy" in monitoring.events),
        )

    @property
    def l3_online(self) -> list[int]:
        """The ids of the L3 caches that have a CPU online, ascending."""
        return [cache.id for cache in self.profile.topology.l3 if not cache.cpus or cache.cpus & self.online]

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
        for cache in self.profile.topology.l3:
            if cpu in cache.cpus:
                self.rmids.set_online(cache.id, bool(cache.cpus & self.online))

    def _is_dirty(self, rmid: int, domain: int) -> bool:
        return self.counters.occupancy(rmid, domain) >= self.threshold
