# SPDX-License-Identifier: Apache-2.0
"""The caches as the JSON values that the API answers with: who may fill which ways; pure."""

from __future__ import annotations

from vmqos import allocation, group_names
from vmqos.agent.snapshot import Snapshot
from vmqos.allocation import FreeRoom, Group
from vmqos.allocation.caches import l2
from vmqos.extra_specs import cpu_spec
from vmqos.host.resctrl_state import ResctrlState
from vmqos.local_api import contract
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource


def caches(snapshot: Snapshot) -> list[contract.Cache]:
    """Every L3 that can be partitioned, with the ways of every control group in it."""
    return _of_level(3, snapshot)


def l2_caches(snapshot: Snapshot) -> list[contract.Cache]:
    """Every L2 that can be partitioned, with the ways of every control group in it."""
    return _of_level(2, snapshot)


def _of_level(level: int, snapshot: Snapshot) -> list[contract.Cache]:
    resctrl = snapshot.resctrl
    if resctrl is None:
        return []
    resource = resctrl.capabilities.l3 if level == 3 else resctrl.capabilities.l2
    if resource is None:
        return []
    room = allocation.free_ways(resctrl.capabilities, resctrl.layout, snapshot.policy, level=level)
    return [_cache(snapshot, resctrl, resource, cache, room[cache]) for cache in resource.cache_ids]


def _cache(
    snapshot: Snapshot, resctrl: ResctrlState, resource: CacheResource, cache: int, room: FreeRoom
) -> contract.Cache:
    of_l3, topology = resource.level == 3, snapshot.topology
    size = (topology.sizes if of_l3 else topology.l2_sizes).get(cache)
    cpus = (topology.cpus if of_l3 else topology.l2).get(cache, frozenset())
    reserved = snapshot.policy.reserved_ways & resource.cbm_mask if of_l3 else CapacityBitmask()
    key, throttle = cache if of_l3 else l2(cache), resctrl.capabilities.memory_bandwidth
    return {
        "resource": resource.name,
        "id": cache,
        "cbm_mask": str(resource.cbm_mask),
        "ways": resource.way_count,
        "size_bytes": size,
        "way_bytes": None if size is None else size // resource.way_count,
        "shareable_bits": str(resource.filled_by_devices[cache]),
        "reserved": str(reserved),
        "cpus": cpu_spec.show(cpus),
        "free_ways": room.free_ways,
        "largest_free_run": room.largest_free_run,
        "bandwidth_unit": throttle.unit.told_in if throttle is not None and of_l3 else None,
        "groups": [_group(snapshot, resctrl, group, key) for group in resctrl.layout.groups if key in group.masks],
    }


def _group(snapshot: Snapshot, resctrl: ResctrlState, group: Group, cache: int) -> contract.CacheGroup:
    uuid = group_names.vm_of(group.name)
    record = snapshot.vms.get(uuid) if uuid else None
    name, parts, throttle = None, group.splits.get(cache), resctrl.capabilities.memory_bandwidth
    if record is not None:
        observed = record.observed.vm
        name = observed.metadata.instance_name if observed.metadata else observed.name
    return {
        "name": group.name,
        "owner": group.owner.value,
        "mask": str(group.masks[cache]),
        "code_mask": str(parts.code) if parts else None,
        "data_mask": str(parts.data) if parts else None,
        # The caches whose traffic is limited are the L3s.
        "bandwidth": throttle.unit.limit(group.throttles.get(cache)) if throttle is not None else None,
        "mode": resctrl.modes.get(group.name, ""),
        "vm": uuid,
        "vm_name": name,
    }
