# SPDX-License-Identifier: Apache-2.0
"""The doctor's look at a mounted resctrl. Each check is one function of what was read."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Collection, Iterator, Sequence

from oslo_config import cfg

from vmqos.allocation.caches import of_level
from vmqos.group_names import BENCH_PREFIX, LOCK_PREFIX, Owner
from vmqos.host import mount_commands, resctrl_access, resctrl_state, reset
from vmqos.host.finding import Finding, Status, count_of
from vmqos.host.resctrl_state import LEFT_LOCKED, ResctrlState
from vmqos.host.single_instance import is_running
from vmqos.resctrl import exceptions, groups, mount, schemata, topology
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthUnit, CacheResource
from vmqos.resctrl.filesystem import Filesystem

LOCK_PATIENCE = 2.0
"""Seconds after which a held lock is worth a warning: the agent and libvirt hold it for milliseconds."""

THRESHOLD = 1 << 20
"""Bytes: more than any processor's unit of occupancy, and less than any L3."""
POLLSTER = "ceilometer"
"""The user that Ceilometer's services run as, in the packages of Debian, Ubuntu and RDO."""


def find_mount(path: str) -> tuple[Finding, mount.Mount | None]:
    """Where resctrl is; ``None`` where it can't even be read."""
    title = "resctrl mount"
    try:
        found = mount.find(path, writable=False)
    except exceptions.NotMounted as error:
        detail, command = str(error), str(error.values["command"])
        if "--bind" not in command and mount_commands.is_mounted_in_a_service():
            detail = f"resctrl is not mounted at {path}, and some service still has a mount of its own"
            command = mount_commands.mount_again(path)
        return Finding(title, Status.PROBLEM, detail, command), None
    except exceptions.NotSupported:
        return Finding(
            title, Status.PROBLEM, f"nothing is mounted at {path}, and the kernel has no resctrl to mount"
        ), None
    except exceptions.DeadMount as error:
        return Finding(title, Status.PROBLEM, str(error), f"fusermount3 -u -z {shlex.quote(path)}"), None
    except exceptions.ResctrlError as error:
        return Finding(title, Status.PROBLEM, str(error)), None
    kind = "the simulator" if found.simulated else "resctrl"
    options = f" with {','.join(sorted(found.options))}" if found.options else ""
    if found.read_only:
        # -i: for a simulator's mount, mount(8) would look for a helper program that there is not.
        command = f"mount -i -o remount,rw {shlex.quote(path)}"
        return Finding(title, Status.PROBLEM, f"{kind} at {path} is read-only", command), found
    return Finding(title, Status.OK, f"{kind} at {path}{options}, writable"), found


def resctrl(conf: cfg.ConfigOpts, found: mount.Mount, flags: Collection[str]) -> Iterator[Finding]:
    """All checks of a mounted resctrl, which is read once for them.

    :param flags: those of ``/proc/cpuinfo``.
    """
    simulated = found.simulated
    filesystem = Filesystem(conf.resctrl.path)
    yield access(conf.resctrl.path, conf.resctrl.readers_group)
    try:
        with filesystem.lock(exclusive=False, timeout=LOCK_PATIENCE):
            view, control = resctrl_state.read(filesystem), groups.list_control_groups(filesystem)
    except exceptions.LockTimeout as error:
        yield Finding("Lock", Status.PROBLEM, str(error), f"fuser -v {conf.resctrl.path}")
        return
    except exceptions.ResctrlError as error:
        yield Finding("resctrl", Status.PROBLEM, str(error), "sudo vmqos doctor" if os.geteuid() else "")
        return
    yield Finding("Lock", Status.OK, "free")
    yield l3_allocation(view)
    yield from mount_options(view, found, flags)
    if view.capabilities.l2 is not None:
        yield l2_allocation(view.capabilities.l2, 2 in view.capabilities.split_levels)
    yield cache_ids(view, conf.resctrl.sysfs_cpu_path, simulated)
    yield default_group(view, control, conf)
    yield closids(view, conf.resctrl.path)
    yield rmids(view)
    yield from limbo(view, conf.resctrl.path, conf.resctrl.sysfs_cpu_path)
    yield foreign_groups(view)
    yield from bench_groups(view, control, conf)
    yield from locks(view)
    yield io_ways(view, conf.allocation.use_shareable_ways)


def access(path: str, group: str, user: str = POLLSTER) -> Finding:
    """Whether only the users that have to can open resctrl's root: who can open it can hold the lock on it for ever.

    :param group: ``[resctrl] readers_group``.
    :param user: the user who reads resctrl without being root, if there is such a user.
    """
    title, group = "Access to resctrl", group or "resctrl"
    place = shlex.quote(path)
    made = [] if resctrl_access.gid_of(group) is not None else [f"groupadd --system {group}"]
    given = f"chown root:{group} {place}"
    try:
        if resctrl_access.is_open_to_others(path):
            detail = (
                f"every user of this host can open {path}, and hold the lock on it for ever: no promise could be kept "
                f"then. Once there is a group {group}, the agent closes it at its next start"
            )
            closed = f"chmod {resctrl_access.MODE:04o} {place}"
            return Finding(title, Status.WARNING, detail, " && ".join((*made, closed, given)))
        reads, owner = resctrl_access.may_read(user, path), os.stat(path).st_gid
    except OSError as error:
        return Finding(title, Status.WARNING, f"{error.filename}: {error.strerror}", "sudo vmqos doctor")
    if reads is False:
        detail = f"the user {user} can't read {path}: Ceilometer has no meters of caches and memory bandwidth"
        gives = [] if owner == resctrl_access.gid_of(group) else [f"chmod {resctrl_access.MODE:04o} {place}", given]
        joins = f"usermod --append --groups {group} {user}   # then restart Ceilometer's agent for compute nodes"
        return Finding(title, Status.WARNING, detail, " && ".join((*made, *gives, joins)))
    status, entering = os.stat(path), "only root"
    if status.st_mode & stat.S_IRGRP:
        entering = f"only root and the group {resctrl_access.name_of(status.st_gid)}"
    return Finding(title, Status.OK, f"{entering} can open {path} and lock it")


def mount_options(view: ResctrlState, found: mount.Mount, flags: Collection[str]) -> Iterator[Finding]:
    """What could be promised if resctrl were mounted with other options, and the commands that do it.

    :param flags: those of ``/proc/cpuinfo``: of code and data apart, the kernel tells nothing until it is on.
    """
    options, capabilities = set(found.options), view.capabilities
    split = {option for option, level in (("cdp", 3), ("cdpl2", 2)) if level in capabilities.split_levels}
    options |= split
    events = capabilities.monitoring.events if capabilities.monitoring else ()
    bandwidth = capabilities.memory_bandwidth
    if "cdp" not in split and (found.simulated or "cdp_l3" in flags):
        detail = "off: VMs whose flavors have hw:cache_code_ways and hw:cache_data_ways are pending here"
        yield _switch("Code and data apart (cdp)", detail, view, found, options | {"cdp"})
    if bandwidth is None:
        return
    title = "Bandwidth in MB/s (mba_MBps)"
    if bandwidth.unit is BandwidthUnit.MBPS:
        detail = "on: VMs whose flavors have hw:mem_bandwidth_percent are pending here"
        yield _switch(title, detail, view, found, options - {"mba_MBps"})
    elif bandwidth.unit is BandwidthUnit.PERCENT and any(event.startswith("mbm_") for event in events):
        detail = "off: VMs whose flavors have hw:mem_bandwidth_mbps are pending here"
        yield _switch(title, detail, view, found, options | {"mba_MBps"})


def _switch(title: str, detail: str, view: ResctrlState, found: mount.Mount, options: set[str]) -> Finding:
    """A finding with the command that mounts resctrl with these options."""
    if found.simulated:
        wanted = f"--mount-options {','.join(sorted(options))}" if options else "no --mount-options"
        return Finding(title, Status.OK, f"{detail}. To change it, start the simulator again with {wanted}")
    if any(group.name.startswith(LOCK_PREFIX) for group in view.layout.groups):
        # From Linux 6.15 on, umount never ends while a region is locked (pseudo_lock_devnode).
        return Finding(title, Status.OK, f"{detail}. To change it, remove all locked regions first", "vmqos lock list")
    detail += ". The command changes it; every group on the host goes by that, and vmqos makes its own again"
    return Finding(title, Status.OK, detail, mount_commands.mount_with(found.path, options))


def l3_allocation(view: ResctrlState) -> Finding:
    """Whether L3 ways can be given out with this mount."""
    l3 = view.capabilities.l3
    if l3 is not None:
        is_split = 3 in view.capabilities.split_levels
        apart = ", for code and for data apart (cdp), which halves the CLOSIDs" if is_split else ""
        return Finding(
            "L3 allocation", Status.OK, f"{l3.way_count} ways on {count_of(len(l3.cache_ids), 'cache')}{apart}"
        )
    missing = "resctrl offers no L3 to partition: there is no info/L3"
    if view.capabilities.l2 is not None or view.capabilities.memory_bandwidth is not None:
        detail = f"{missing}; VMs whose flavors ask for L3 ways are pending here"
        return Finding("L3 allocation", Status.WARNING, detail)
    return Finding("L3 allocation", Status.PROBLEM, missing)


def l2_allocation(l2: CacheResource, is_split: bool) -> Finding:
    """How many L2 ways can be given out with this mount."""
    apart = ", for code and for data apart (cdpl2)" if is_split else ""
    return Finding("L2 allocation", Status.OK, f"{l2.way_count} ways on {count_of(len(l2.cache_ids), 'cache')}{apart}")


def cache_ids(view: ResctrlState, sysfs: str, simulated: bool) -> Finding:
    """Whether sysfs tells which CPUs use each of the caches."""
    l3 = view.capabilities.l3
    wanted = set(l3.cache_ids) if l3 else set()
    known = set(topology.l3_of_cpus(sysfs))
    if wanted <= known:
        return Finding("CPUs of the caches", Status.OK, f"known for {count_of(len(wanted), 'L3 cache')} from {sysfs}")
    missing = ", ".join(map(str, sorted(wanted - known)))
    detail = f"{sysfs} has no CPU for L3 cache {missing}"
    command = "set [resctrl] sysfs_cpu_path to the directory of 'vmqos simulate --sysfs'" if simulated else ""
    return Finding("CPUs of the caches", Status.PROBLEM, detail, command)


def default_group(view: ResctrlState, control: Sequence[groups.ControlGroup], conf: cfg.ConfigOpts) -> Finding:
    """Whether the host itself has ways enough, and no way lies idle in no group."""
    title, l3, default = "Default group", view.capabilities.l3, view.group("")
    if l3 is None or default is None:
        return Finding(title, Status.OK, "there are no L3 ways for it to have")
    floor, reserved = conf.allocation.default_ways_min, CapacityBitmask.parse(conf.allocation.reserved_ways)
    repair = _repair(view, control, conf)
    of_l3 = of_level(3, default.masks)
    starved = [f"{mask.count} on cache {cache}" for cache, mask in of_l3.items() if mask.count < floor]
    if starved:
        detail = f"has fewer than [allocation] default_ways_min = {floor} ways: {', '.join(starved)}"
        return Finding(title, Status.PROBLEM, detail, repair)
    idle = {cache: ways for cache in of_l3 if (ways := l3.cbm_mask - reserved - _held(view, cache))}
    if idle:
        detail = f"ways that no group holds, so that no task uses them: {schemata.format_values('L3', idle)}"
        return Finding(title, Status.WARNING, detail, repair)
    counts = ", ".join(f"{mask.count} ways on cache {cache}" for cache, mask in of_l3.items())
    return Finding(title, Status.OK, f"has {counts}")


def _repair(view: ResctrlState, control: Sequence[groups.ControlGroup], conf: cfg.ConfigOpts) -> str:
    """The command that gives the default group every way that no group has; empty if there is no such way."""
    left = view.group(LEFT_LOCKED)
    reserved = CapacityBitmask.parse(conf.allocation.reserved_ways)
    grown = {
        name: masks
        for name, cache in view.capabilities.caches.items()
        if cache.level == 3
        and (masks := reset.grow_default(control, cache, reserved, True, left.masks if left else {}))
    }
    lines = "\\n".join(schemata.format_values(name, masks) for name, masks in grown.items())
    if len(grown) > 1:
        return f"printf '{lines}\\n' > {conf.resctrl.path}/schemata"
    return f"echo '{lines}' > {conf.resctrl.path}/schemata" if lines else ""


def _held(view: ResctrlState, cache: int) -> CapacityBitmask:
    held = CapacityBitmask()
    for group in view.layout.groups:
        held |= group.masks.get(cache, CapacityBitmask())
    return held


def closids(view: ResctrlState, path: str) -> Finding:
    """How many more control groups there can be."""
    total, used = view.capabilities.num_closids, view.closids_in_use
    detail = f"{used} of {total} in use, the default group included"
    if used < total:
        return Finding("Control groups (CLOSIDs)", Status.OK, detail)
    command = f"rmdir {path}/NAME   # of a group that is not needed, see 'Groups of others'"
    return Finding("Control groups (CLOSIDs)", Status.WARNING, f"{detail}: no VM can get a class of its own", command)


def rmids(view: ResctrlState) -> Finding:
    """How many more groups can be monitored."""
    title, monitoring = "Monitoring groups (RMIDs)", view.capabilities.monitoring
    if monitoring is None:
        return Finding(title, Status.WARNING, "this host has no cache or bandwidth counters: nothing can be measured")
    detail = f"{view.rmids_in_use} of {monitoring.num_rmids} in use"
    if view.rmids_in_use < monitoring.num_rmids:
        return Finding(title, Status.OK, detail)
    return Finding(title, Status.WARNING, f"{detail}: further VMs can't be monitored")


def limbo(view: ResctrlState, path: str, sysfs: str) -> Iterator[Finding]:
    """Whether RMIDs of groups that are gone can be had again.

    The kernel keeps one back while a cache holds as much of it as the threshold says, or more (``__check_limbo``): with
    0 that is for ever.
    """
    monitoring = view.capabilities.monitoring
    if monitoring is None or monitoring.max_threshold_occupancy or "llc_occupancy" not in monitoring.events:
        return
    smallest = min(topology.cache_sizes(sysfs).values(), default=THRESHOLD)
    yield Finding(
        "RMIDs in limbo",
        Status.WARNING,
        "max_threshold_occupancy is 0: RMIDs of groups that are removed are never free again, and once none is left no "
        "further VM can be monitored",
        f"echo {min(THRESHOLD, smallest)} > {path}/info/L3_MON/max_threshold_occupancy",
    )


def bench_groups(view: ResctrlState, control: Sequence[groups.ControlGroup], conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Ways that an experiment has, or had when it was killed."""
    path = conf.resctrl.path
    names = [group.name for group in view.layout.groups if group.name.startswith(BENCH_PREFIX)]
    if not names:
        return
    title = "Groups of 'vmqos bench'"
    if is_running(path, who="bench"):
        yield Finding(title, Status.OK, f"{', '.join(names)}: an experiment runs and gives the ways back at its end")
        return
    detail = (
        f"{', '.join(names)}: left behind by an experiment that was killed; no VM can have the ways. The next "
        "'vmqos bench' removes it too, and so does 'vmqos reset', with all else that is vmqos'"
    )
    # 'vmqos reset' alone would take the VMs' ways from them, and is refused while the agent runs.
    rest = [group for group in control if group.name not in names]
    commands = [*(f"rmdir {path}/{name}" for name in names), _repair(view, rest, conf)]
    yield Finding(title, Status.WARNING, detail, " && ".join(filter(None, commands)))


def locks(view: ResctrlState) -> Iterator[Finding]:
    """What 'vmqos lock' made: no foreign groups, but the operator's own."""
    names = [group.name.removeprefix(LOCK_PREFIX) for group in view.layout.groups if group.name.startswith(LOCK_PREFIX)]
    if names:
        yield Finding("Locked memory", Status.OK, f"{', '.join(names)}: see 'vmqos lock list'")


def foreign_groups(view: ResctrlState) -> Finding:
    """Groups of other owners: their ways count as taken."""
    foreign = (group for group in view.layout.groups if group.owner is Owner.FOREIGN)
    others = [group for group in foreign if not group.name.startswith((BENCH_PREFIX, LOCK_PREFIX))]
    if not others:
        return Finding("Groups of others", Status.OK, "none")
    names = ", ".join(
        f"{group.name} ({schemata.format_values('L3', of_l3)})" if (of_l3 := of_level(3, group.masks)) else group.name
        for group in others
    )
    return Finding("Groups of others", Status.WARNING, f"{names}: vmqos leaves them alone, their ways count as taken")


def io_ways(view: ResctrlState, usable: bool) -> Finding:
    """Ways that devices fill, whatever any mask says."""
    l3 = view.capabilities.l3
    shared = l3.shareable_bits if l3 else CapacityBitmask()
    if l3 is not None and l3.io_alloc:
        masks = schemata.format_values("L3", l3.io_alloc)
        detail = f"devices are confined to {masks} (io_alloc in info/), which takes one CLOSID"
        return Finding("I/O ways", Status.OK, detail)
    if not shared:
        return Finding("I/O ways", Status.OK, "none: no device shares the L3 ways")
    if l3 is not None and shared == l3.cbm_mask and not usable:
        detail = (
            "devices may fill every way, as on Arm, so no VM can have ways of its own: [allocation] use_shareable_ways "
            "= true promises them all the same"
        )
        return Finding("I/O ways", Status.WARNING, detail)
    use = "promised last" if usable else "not promised exclusively ([allocation] use_shareable_ways is false)"
    return Finding("I/O ways", Status.OK, f"{shared.count} (mask {shared}) are filled by devices too, and {use}")
