# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at a mounted resctrl. Each check is one function of what was read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from oslo_config import cfg

from vmqos.agent import reset
from vmqos.agent.finding import Finding, Status
from vmqos.agent.view import LEFT_LOCKED, ResctrlView, look
from vmqos.allocation import Owner
from vmqos.resctrl import exceptions, groups, mount, schemata, topology
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.filesystem import Filesystem

LOCK_PATIENCE = 2.0
"""Seconds after which a held lock is worth a warning: the agent and libvirt hold it for milliseconds."""


def find_mount(path: str) -> tuple[Finding, mount.Mount | None]:
    """Where resctrl is; ``None`` where it can't even be read."""
    title = "resctrl mount"
    try:
        found = mount.find(path, writable=False)
    except exceptions.NotMounted as error:
        return Finding(title, Status.PROBLEM, f"resctrl is not mounted at {path}", str(error.values["mend"])), None
    except exceptions.NotSupported:
        return Finding(
            title, Status.PROBLEM, f"nothing is mounted at {path}, and the kernel has no resctrl to mount"
        ), None
    except exceptions.ResctrlError as error:
        return Finding(title, Status.PROBLEM, str(error)), None
    kind = "the simulator" if found.simulated else "resctrl"
    options = f" with {','.join(sorted(found.options))}" if found.options else ""
    if found.read_only:
        return Finding(title, Status.PROBLEM, f"{kind} at {path} is read-only", f"mount -o remount,rw {path}"), found
    return Finding(title, Status.OK, f"{kind} at {path}{options}, writable"), found


def resctrl(conf: cfg.ConfigOpts, simulated: bool) -> Iterator[Finding]:
    """All checks of a mounted resctrl, which is read once for them."""
    filesystem = Filesystem(conf.resctrl.path)
    try:
        with filesystem.lock(exclusive=False, timeout=LOCK_PATIENCE):
            view, control = look(filesystem), groups.list_control_groups(filesystem)
    except exceptions.LockTimeout as error:
        yield Finding("Lock", Status.PROBLEM, str(error), f"fuser -v {conf.resctrl.path}")
        return
    except exceptions.ResctrlError as error:
        yield Finding("resctrl", Status.PROBLEM, str(error), "sudo vmqos doctor" if os.geteuid() else "")
        return
    yield Finding("Lock", Status.OK, "free")
    yield l3_allocation(view, conf.resctrl.path, simulated)
    yield cache_ids(view, conf.resctrl.sysfs_cpu_path, simulated)
    yield default_group(view, control, conf)
    yield closids(view, conf.resctrl.path)
    yield rmids(view)
    yield foreign_groups(view)
    yield io_ways(view, conf.allocation.use_shareable_ways)


def l3_allocation(view: ResctrlView, path: str, simulated: bool) -> Finding:
    """Whether L3 ways can be given out with this mount."""
    l3 = view.capabilities.l3
    if l3 is not None:
        return Finding("L3 allocation", Status.OK, f"{l3.way_count} ways on {len(l3.cache_ids)} cache(s)")
    if "L3CODE" in view.capabilities.caches:
        detail = "mounted with cdp: L3 is split into code and data ways, and hw:cache_ways can't be kept"
        again = f"vmqos simulate {path}" if simulated else f"mount -t resctrl resctrl {path}"
        return Finding("L3 allocation", Status.PROBLEM, detail, f"umount {path} && {again}")
    return Finding("L3 allocation", Status.PROBLEM, "resctrl offers no L3 to partition: there is no info/L3")


def cache_ids(view: ResctrlView, sysfs: str, simulated: bool) -> Finding:
    """Whether sysfs tells which CPUs use each of the caches."""
    l3 = view.capabilities.l3
    wanted = set(l3.cache_ids) if l3 else set()
    known = set(topology.l3_of_cpus(sysfs))
    if wanted <= known:
        return Finding("CPUs of the caches", Status.OK, f"known for {len(wanted)} L3 cache(s) from {sysfs}")
    missing = ", ".join(map(str, sorted(wanted - known)))
    detail = f"{sysfs} has no CPU for L3 cache {missing}"
    command = "set [resctrl] sysfs_cpu_path to the directory of 'vmqos simulate --sysfs'" if simulated else ""
    return Finding("CPUs of the caches", Status.PROBLEM, detail, command)


def default_group(view: ResctrlView, control: Sequence[groups.ControlGroup], conf: cfg.ConfigOpts) -> Finding:
    """Whether the host itself has ways enough, and no way lies idle in no group."""
    title, l3, default = "Default group", view.capabilities.l3, view.group("")
    if l3 is None or default is None:
        return Finding(title, Status.WARNING, "has no L3 ways of its own to look at")
    floor, reserved = conf.allocation.default_ways_min, CapacityBitmask.parse(conf.allocation.reserved_ways)
    left = view.group(LEFT_LOCKED)
    grown = reset.grow_default(control, l3, reserved, keep_ours=True, locked=left.masks if left else {})
    line = schemata.format_masks("L3", grown) if grown else ""
    repair = f"echo '{line}' > {conf.resctrl.path}/schemata" if line else ""
    starved = [f"{mask.count} on cache {cache}" for cache, mask in default.masks.items() if mask.count < floor]
    if starved:
        detail = f"has fewer than [allocation] default_ways_min = {floor} ways: {', '.join(starved)}"
        return Finding(title, Status.PROBLEM, detail, repair)
    idle = {cache: ways for cache in default.masks if (ways := l3.cbm_mask - reserved - _held(view, cache))}
    if idle:
        detail = f"ways that no group holds, so that nobody uses them: {schemata.format_masks('L3', idle)}"
        return Finding(title, Status.WARNING, detail, repair)
    counts = ", ".join(f"{mask.count} ways on cache {cache}" for cache, mask in sorted(default.masks.items()))
    return Finding(title, Status.OK, f"has {counts}")


def _held(view: ResctrlView, cache: int) -> CapacityBitmask:
    held = CapacityBitmask()
    for group in view.layout.groups:
        held |= group.masks.get(cache, CapacityBitmask())
    return held


def closids(view: ResctrlView, path: str) -> Finding:
    """How many more control groups there can be."""
    total, used = view.capabilities.num_closids, view.layout.closids_in_use
    detail = f"{used} of {total} in use, the default group included"
    if used < total:
        return Finding("Control groups (CLOSIDs)", Status.OK, detail)
    command = f"rmdir {path}/NAME   # of a group that nobody needs, see 'Groups of others'"
    return Finding("Control groups (CLOSIDs)", Status.WARNING, f"{detail}: no VM can get a class of its own", command)


def rmids(view: ResctrlView) -> Finding:
    """How many more groups can be monitored."""
    title, monitoring = "Monitoring groups (RMIDs)", view.capabilities.monitoring
    if monitoring is None:
        return Finding(title, Status.WARNING, "this host has no cache or bandwidth counters: nothing can be measured")
    detail = f"{view.rmids_in_use} of {monitoring.num_rmids} in use"
    if view.rmids_in_use < monitoring.num_rmids:
        return Finding(title, Status.OK, detail)
    return Finding(title, Status.WARNING, f"{detail}: further VMs can't be monitored")


def foreign_groups(view: ResctrlView) -> Finding:
    """Groups of other owners: their ways count as taken."""
    others = [group for group in view.layout.groups if group.owner is Owner.FOREIGN]
    if not others:
        return Finding("Groups of others", Status.OK, "none")
    names = ", ".join(f"{group.name} ({schemata.format_masks('L3', group.masks)})" for group in others)
    return Finding("Groups of others", Status.WARNING, f"{names}: vmqos leaves them alone, their ways count as taken")


def io_ways(view: ResctrlView, usable: bool) -> Finding:
    """Ways that devices fill, whatever any mask says."""
    l3 = view.capabilities.l3
    shared = l3.shareable_bits if l3 else CapacityBitmask()
    if not shared:
        return Finding("I/O ways", Status.OK, "none: no device shares the L3 ways")
    use = "promised last" if usable else "not promised exclusively ([allocation] use_shareable_ways is false)"
    return Finding("I/O ways", Status.OK, f"{shared.count} (mask {shared}) are filled by devices too, and {use}")
