# SPDX-License-Identifier: Apache-2.0
"""The files of a group and the directories of its counters."""

from __future__ import annotations

import errno
import stat

from vmqos.simulator.files import cpu_files, mode, sampling, schemata, task_files
from vmqos.simulator.files.state import Group, Mounted
from vmqos.simulator.kernel.numbers import refusal
from vmqos.simulator.kernel.tree import Caller, Directory, File

_ROOT = Caller()


def fill(mounted: Mounted, group: Group, owner: Caller) -> None:
    """Put every file of a group into its directory (``rdtgroup_add_files``, ``mkdir_mondata_all``)."""
    directory, options = group.directory, mounted.options
    directory.add(_cpu_file(mounted, group, "cpus", owner, as_list=False))
    directory.add(_cpu_file(mounted, group, "cpus_list", owner, as_list=True))
    directory.add(
        File(
            "tasks",
            0o644,
            owner,
            lambda: task_files.show(mounted, group),
            lambda data, caller: task_files.store(mounted, group, data, caller),
        )
    )
    monitoring = mounted.hardware.profile.monitoring
    if not group.is_monitoring:
        _fill_control(mounted, group, owner)
    if options.debug and monitoring:
        directory.add(File("mon_hw_id", 0o444, owner, lambda: f"{group.rmid}\n"))
    if monitoring:
        group.mon_data = Directory("mon_data", stat.S_IMODE(directory.mode), owner, group)
        for domain in mounted.hardware.l3_online:
            add_counters(mounted, group, domain, owner)
        directory.add(group.mon_data)


def add_counters(mounted: Mounted, group: Group, domain: int, owner: Caller = _ROOT) -> None:
    """Add the counters of one cache to a group's ``mon_data``."""
    monitoring, mon_data = mounted.hardware.profile.monitoring, group.mon_data
    assert monitoring is not None and mon_data is not None
    folder = Directory(counter_folder(domain), stat.S_IMODE(mon_data.mode), owner, group)
    for event in monitoring.events:
        folder.add(_counter_file(mounted, group, domain, event, owner))
    if group.rmid:
        mounted.hardware.counters.reset(group.rmid, domain)
    mon_data.add(folder)


def counter_folder(domain: int) -> str:
    """The name of the directory with an L3 cache's counters."""
    return f"mon_L3_{domain:02d}"


def _cpu_file(mounted: Mounted, group: Group, name: str, owner: Caller, *, as_list: bool) -> File:
    return File(
        name,
        0o644,
        owner,
        lambda: cpu_files.show(mounted, group, as_list=as_list),
        lambda data, caller: cpu_files.store(mounted, group, data, as_list=as_list),
    )


def _counter_file(mounted: Mounted, group: Group, domain: int, event: str, owner: Caller) -> File:
    def show() -> str:
        sampling.sample(mounted.hardware, mounted)
        rmids = [group.rmid, *(child.rmid for child in group.children)]
        return mounted.hardware.counters.read(rmids, domain, event) + "\n"

    return File(event, 0o444, owner, show, writable=False)


def _fill_control(mounted: Mounted, group: Group, owner: Caller) -> None:
    directory = group.directory

    def store_event(data: str, caller: Caller) -> None:
        _store_event(mounted, group, data)

    directory.add(
        File(
            "schemata",
            0o644,
            owner,
            lambda: schemata.show(mounted, group),
            lambda data, caller: schemata.store(mounted, group, data),
        )
    )
    directory.add(
        File("mode", 0o644, owner, lambda: mode.show(group), lambda data, caller: mode.store(mounted, group, data))
    )
    directory.add(File("size", 0o444, owner, lambda: schemata.show_size(mounted, group)))
    if mounted.options.mba_mbps and mounted.kernel.has_mba_event:
        directory.add(File("mba_MBps_event", 0o644, owner, lambda: f"{group.event}\n", store_event))
    if mounted.options.debug:
        directory.add(File("ctrl_hw_id", 0o444, owner, lambda: f"{group.closid}\n"))


def _store_event(mounted: Mounted, group: Group, data: str) -> None:
    """``rdtgroup_mba_mbps_event_write``."""
    if not data.endswith("\n"):
        raise refusal(errno.EINVAL)
    mounted.status.clear()
    word = data[:-1].partition("\0")[0]
    monitoring = mounted.hardware.profile.monitoring
    if monitoring is None or word not in monitoring.events or word == "llc_occupancy":
        mounted.status.printf(f"Unsupported event id '{word}'\n")
        raise refusal(errno.EINVAL)
    group.event = word
