# SPDX-License-Identifier: Apache-2.0
"""``GET /metrics``: the counters and the agent's state for Prometheus."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from vmqos import allocation, group_names
from vmqos.agent.loop import Agent
from vmqos.agent.sample.sampler import OLD_AFTER, Telemetry
from vmqos.agent.serve.health_report import ages
from vmqos.agent.snapshot import Snapshot as AgentSnapshot
from vmqos.allocation.caches import of_level
from vmqos.gateway.exposition import HostCollector
from vmqos.gateway.flavors import FlavorLookup
from vmqos.gateway.placement import Told
from vmqos.gateway.published import AgentState, CacheState, VmState
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.capabilities import BandwidthUnit
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.telemetry import Snapshot
from vmqos.version import version

SHARED_FOR = 1.0
"""Seconds for which one text serves all who scrape: making it takes a tenth of a second where there are many VMs."""


class Metrics:
    """Makes the text of a scrape.

    :param agent: the agent to tell about.
    :param telemetry: where the counters come from.
    """

    def __init__(self, agent: Agent, telemetry: Telemetry) -> None:
        self._agent = agent
        self._telemetry = telemetry
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(HostCollector(self._look))
        ProcessCollector(registry=self._registry)
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, bytes]] = {}

    def answer(self, accept: str) -> tuple[str, bytes]:
        """The media type and the text, in the format that the client wants most.

        :param accept: the request's ``Accept`` header.
        """
        encode, content_type = choose_encoder(accept)
        with self._lock:
            now = time.monotonic()
            made_at, text = self._made.get(content_type, (-math.inf, b""))
            if now - made_at > SHARED_FOR:
                text = encode(self._registry)
                self._made[content_type] = time.monotonic(), text
        return content_type, text

    def _look(self) -> tuple[Snapshot | None, AgentState]:
        try:
            found: Snapshot | None = self._telemetry.newest()
        except ResctrlError:
            # The log has it, from the thread that sweeps, and vmqos_resctrl_up or vmqos_sweep_age_seconds says so.
            found = None
        if found is not None and time.monotonic() - found.monotonic > max(3 * self._telemetry.fresh_for, OLD_AFTER):
            # A counter that stands still would be taken for a VM that does.
            found = None
        return found, published(self._agent, self._telemetry)


def published(agent: Agent, telemetry: Telemetry) -> AgentState:
    """What the agent knows and does, as plain values."""
    snapshot = agent.snapshot
    uptime = time.monotonic() - agent.started
    resctrl = snapshot.resctrl
    vms = {}
    for uuid, record in snapshot.vms.items():
        observed, given = record.observed.vm, record.allocation
        metadata = observed.metadata
        vms[uuid] = VmState(
            uuid=uuid,
            name=(metadata.instance_name if metadata else "") or observed.name,
            project=metadata.project if metadata else "",
            flavor=metadata.flavor if metadata else "",
            state=given.state.value,
            reason=given.reason.label,
            ways={cache: mask.count for cache, mask in of_level(3, given.masks).items()},
            l2_ways={cache: mask.count for cache, mask in of_level(2, given.masks).items()},
            **_of_bandwidth(resctrl, given.throttles),
        )
    state = AgentState(
        version=version(),
        resctrl=resctrl is not None and not agent.health.resctrl_error,
        libvirt=agent.connection.is_connected and agent.unanswered() is None,
        vms=vms,
        **_of_openstack(agent.placement.state, agent.flavors),
        passes=agent.pass_times.durations(),
        failed_passes=agent.pass_times.failed,
        ages={part: uptime if age is None else age for part, age in ages(agent, telemetry).items()},
        unserved=len(agent.health.unserved),
    )
    return state if resctrl is None else replace(state, **_of_resctrl(resctrl, snapshot))


def _of_bandwidth(resctrl: ResctrlState | None, throttles: Mapping[int, int]) -> dict[str, Any]:
    resource = resctrl.capabilities.memory_bandwidth if resctrl is not None else None
    if resource is None:
        return {}
    is_ratio = resource.unit is BandwidthUnit.PERCENT
    scale = 0.01 if is_ratio else 1e6
    values = {cache: value * scale for cache, value in resource.unit.limits(throttles).items()}
    return {"bandwidth": values, "bandwidth_is_ratio": is_ratio}


def _of_openstack(told: Told, flavors: FlavorLookup) -> dict[str, Any]:
    inventories = told.told.inventories if told.told else {}
    return {
        "placement": (not told.error and told.told is not None) if told.where else None,
        "inventories": {name: inventory.capacity for name, inventory in inventories.items()},
        "placement_failures": told.failures,
        "nova": not flavors.error if flavors.is_on else None,
        "flavors_unknown": flavors.waiting,
    }


def _of_resctrl(resctrl: ResctrlState, snapshot: AgentSnapshot) -> dict[str, Any]:
    capabilities, resource = resctrl.capabilities, resctrl.capabilities.l3
    caches = {}
    if resource is not None:
        room = allocation.free_ways(capabilities, resctrl.layout, snapshot.policy)
        for cache in resource.cache_ids:
            size = snapshot.topology.sizes.get(cache)
            caches[cache] = CacheState(resource.way_count, size, room[cache].free_ways, room[cache].largest_free_run)
    owners = Counter(group.owner.value for group in resctrl.layout.groups)
    return {
        "caches": caches,
        "groups": {owner.value: owners[owner.value] for owner in group_names.Owner},
        "closids": capabilities.num_closids,
        "closids_used": len(resctrl.layout.groups),
        "rmids": capabilities.monitoring.num_rmids if capabilities.monitoring else 0,
        "rmids_used": resctrl.rmids_in_use,
    }
