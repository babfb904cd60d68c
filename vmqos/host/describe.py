# SPDX-License-Identifier: Apache-2.0
"""All that resctrl tells of this host, as JSON: what it offers, and which group has what, with whose VMs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from vmqos.group_names import Owner, owner_of, vm_of
from vmqos.host.finding import read
from vmqos.resctrl import cpuinfo, exceptions, groups, info, monitoring, mount, pseudo_lock, tasks
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities
from vmqos.resctrl.filesystem import Filesystem
from vmqos.resctrl.groups import ControlGroup

Json = dict[str, Any]

_CURRENT = re.compile(r"\[(\w+)\]")


def host(conf: cfg.ConfigOpts) -> Json:
    """What the configured resctrl offers, with its control groups in ``groups``; no agent need run.

    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl is not there or can't be read.
    """
    filesystem = Filesystem(mount.find(conf.resctrl.path, writable=False).path)
    with filesystem.lock(exclusive=False, timeout=conf.resctrl.lock_timeout):
        told = capabilities(filesystem, info.read_capabilities(filesystem), conf.resctrl.sysfs_cpu_path)
    return told | {"groups": control_groups(filesystem, conf.resctrl.lock_timeout)}


def capabilities(filesystem: Filesystem, found: Capabilities, sysfs_cpu: str, proc: str = "/proc") -> Json:
    """What ``info/`` says, and what it does not: a cache's lines, what the mount left off.

    :param found: what ``info/`` says.
    :param sysfs_cpu: where the kernel describes the caches.
    :param proc: where procfs is mounted.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
    """
    mounted = mount.find(filesystem.root, writable=False)
    flags = None if mounted.simulated else cpuinfo.flags(proc)
    told = offered(found)
    for name, cache in found.caches.items():
        told["caches"][name] |= _cache(filesystem, cache, sysfs_cpu, flags)
    for name in found.bandwidths:
        told["bandwidths"][name]["thread_throttle_mode"] = _info(filesystem, name, "thread_throttle_mode")
    if found.monitoring is not None:
        told["monitoring"] |= _monitoring(filesystem)
    told["mount_options"] = sorted(mounted.options)
    told["simulated"] = mounted.simulated
    return told


def control_groups(filesystem: Filesystem, patience: float) -> list[Json]:
    """Every control group, the default one first; it costs a read of each group's tasks.

    The lock is held while the groups are listed, and no longer: for each group's tasks the kernel goes through all
    tasks of the host, so that a VM that starts would wait for a second where there are a thousand groups.

    :param patience: seconds to wait for the lock.
    :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
    """
    with filesystem.lock(exclusive=False, timeout=patience):
        found = [(group, _inside(filesystem, group)) for group in groups.list_control_groups(filesystem)]
    return [_group(filesystem, group, names) for group, names in found]


def offered(found: Capabilities) -> Json:
    """What ``info/`` says."""
    monitoring = found.monitoring
    return {
        "num_closids": found.num_closids,
        "caches": {
            name: {
                "num_closids": cache.num_closids,
                "cbm_mask": str(cache.cbm_mask),
                "ways": cache.way_count,
                "min_cbm_bits": cache.min_cbm_bits,
                "shareable_bits": str(cache.shareable_bits),
                "sparse_masks": cache.sparse_masks,
                "io_alloc": None if cache.io_alloc is None else _masks(cache.io_alloc),
                "cache_ids": list(cache.cache_ids),
            }
            for name, cache in found.caches.items()
        },
        "bandwidths": {
            name: {
                "num_closids": bandwidth.num_closids,
                "min_bandwidth": bandwidth.min_bandwidth,
                "bandwidth_gran": bandwidth.bandwidth_gran,
                "delay_linear": bandwidth.delay_linear,
                "unit": bandwidth.unit.value,
                "cache_ids": list(bandwidth.cache_ids),
            }
            for name, bandwidth in found.bandwidths.items()
        },
        "monitoring": None
        if monitoring is None
        else {
            "num_rmids": monitoring.num_rmids,
            "events": list(monitoring.events),
            "max_threshold_occupancy": monitoring.max_threshold_occupancy,
        },
    }


def _masks(masks: Mapping[int, CapacityBitmask]) -> dict[str, str]:
    return {str(cache): str(mask) for cache, mask in sorted(masks.items())}


def _info(filesystem: Filesystem, resource: str, name: str) -> str | None:
    """One line of ``info/``; ``None`` where this kernel or machine does not have it."""
    try:
        return filesystem.read("info", resource, name).strip()
    except exceptions.ResctrlError:
        return None


def _cache(filesystem: Filesystem, cache: CacheResource, sysfs_cpu: str, flags: frozenset[str] | None) -> Json:
    if cache.name != f"L{cache.level}":
        cdp = "on"
    elif flags is None:
        cdp = None
    else:
        cdp = "off" if f"cdp_l{cache.level}" in flags else "unsupported"
    shape = _shape(cache.level, sysfs_cpu)
    size = shape["size_bytes"]
    return {
        "cdp": cdp,
        **shape,
        "way_bytes": size // cache.way_count if size else None,
        "bit_usage": _info(filesystem, cache.name, "bit_usage"),
    }


def _shape(level: int, sysfs_cpu: str) -> Json:
    """The size of one cache of a level, of its lines, and how many sets it has, as far as the kernel says."""
    for cpu in sorted(filter(re.compile(r"cpu\d+").fullmatch, _listing(sysfs_cpu)), key=lambda name: int(name[3:])):
        for index in sorted(_listing(f"{sysfs_cpu}/{cpu}/cache")):
            path = f"{sysfs_cpu}/{cpu}/cache/{index}"
            if read(path, "level").strip() == str(level) and read(path, "type").strip() != "Instruction":
                size = read(path, "size").strip()
                return {
                    "size_bytes": int(size[:-1]) * 1024 if size.endswith("K") else None,
                    "line_bytes": _number(read(path, "coherency_line_size")),
                    "sets": _number(read(path, "number_of_sets")),
                }
    return {"size_bytes": None, "line_bytes": None, "sets": None}


def _listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.strip().isdecimal() else None


def _monitoring(filesystem: Filesystem) -> Json:
    features = (_info(filesystem, "L3_MON", "mon_features") or "").split()
    modes = _info(filesystem, "L3_MON", "mbm_assign_mode")
    current = _CURRENT.search(modes or "")
    counters = monitoring.read_counters(filesystem)
    return {
        "configurable": [event for event in features if f"{event}_config" in features],
        "assign_mode": current[1] if current else None,
        "assignable_counters": _info(filesystem, "L3_MON", "num_mbm_cntrs"),
        "sub_numa_nodes": sum(one.source.node is not None for one in counters),
        "package_events": sorted({event for one in counters if one.source.package is not None for event in one.events}),
    }


def _inside(filesystem: Filesystem, group: ControlGroup) -> list[str]:
    """The names of the monitoring groups in a control group; none where it was removed just now."""
    with contextlib.suppress(exceptions.Vanished):
        return groups.list_monitoring_groups(filesystem, group.name)
    return []


def _group(filesystem: Filesystem, group: ControlGroup, names_inside: list[str]) -> Json:
    inside = [
        {"name": name, **_members(filesystem, groups.monitoring_directory(group.name, name))} for name in names_inside
    ]
    owner = owner_of(group.name) if group.mode != pseudo_lock.LOCKED else Owner.FOREIGN
    names = [group.name] if owner is Owner.VM else [one["name"] for one in inside]
    return {
        "name": group.name,
        "owner": owner.value,
        "mode": group.mode,
        "schemata": {
            resource: {str(cache): value for cache, value in sorted(values.items())}
            for resource, values in group.schemata.items()
        },
        **_members(filesystem, group.name),
        # Only a kernel that is mounted with "debug" tells.
        "closid": _hardware_id(filesystem, group.name, "ctrl_hw_id"),
        "monitoring_groups": inside,
        "vms": sorted(set(filter(None, map(vm_of, names)))),
    }


def _members(filesystem: Filesystem, directory: str) -> Json:
    """How many tasks a group has, and its CPUs; ``None`` for one that is pseudo-locked, or was removed just now."""
    count, cpus = None, ""
    with contextlib.suppress(exceptions.ResctrlError):
        count = len(tasks.read_tasks(filesystem, directory))
    with contextlib.suppress(exceptions.ResctrlError):
        cpus = filesystem.read(directory, "cpus_list").strip()
    return {"tasks": count, "cpus": cpus, "rmid": _hardware_id(filesystem, directory, "mon_hw_id")}


def _hardware_id(filesystem: Filesystem, directory: str, name: str) -> int | None:
    try:
        return _number(filesystem.read(directory, name))
    except exceptions.ResctrlError:
        return None
