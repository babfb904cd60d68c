# SPDX-License-Identifier: Apache-2.0
"""The files of a group and the directories of its counters."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterator, Sequence

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
        for domain in mounted.hardware.counted_online:
            add_counters(mounted, group, domain, owner)
        for package in mounted.hardware.l3_online:
            add_package(mounted, group, package, owner)
        directory.add(group.mon_data)


def add_counters(mounted: Mounted, group: Group, domain: int, owner: Caller = _ROOT) -> None:
    """Add the counters of one cache, or of one node, to a group's ``mon_data`` (``mkdir_mondata_subdir``).

    Those of a new node are in a folder of their own within the cache's, whose files sum the nodes up.
    """
    mon_data, topology = group.mon_data, mounted.hardware.profile.topology
    assert mon_data is not None
    cache = topology.l3_of(domain).id
    folder = mon_data.get(counter_folder(cache))
    if folder is None:
        folder = _counter_folder(group, mon_data, counter_folder(cache), owner)
        for file in _counter_files(mounted, group, lambda: mounted.hardware.counted_of(cache), owner):
            folder.add(file)
    if topology.nodes_per_l3 > 1:
        assert isinstance(folder, Directory)
        node = _counter_folder(group, folder, _node_folder(domain), owner)
        for file in _counter_files(mounted, group, lambda: [domain], owner):
            node.add(file)
    if group.rmid:
        mounted.hardware.counters.reset(group.rmid, domain)


def remove_counters(mounted: Mounted, group: Group, domain: int) -> None:
    """Take the counters of one cache, or of one node, away: with the last node goes the cache's folder."""
    mon_data, topology = group.mon_data, mounted.hardware.profile.topology
    assert mon_data is not None
    name = counter_folder(topology.l3_of(domain).id)
    folder = mon_data.get(name)
    assert isinstance(folder, Directory)
    if folder.get(_node_folder(domain)) is not None:
        folder.remove(_node_folder(domain))
        if any(isinstance(node, Directory) for node in folder):
            return
    mon_data.remove(name)


def add_package(mounted: Mounted, group: Group, package: int, owner: Caller = _ROOT) -> None:
    """Add the counters of one package, where it has any."""
    packages, mon_data = mounted.hardware.profile.packages, group.mon_data
    if packages is None or mon_data is None or not mounted.kernel.has_package_events:
        return
    folder = _counter_folder(group, mon_data, package_folder(package), owner)
    for event in packages.events:
        folder.add(_package_file(mounted, group, package, event, owner))


def counter_folder(cache: int) -> str:
    """The name of the directory with an L3 cache's counters."""
    return f"mon_L3_{cache:02d}"


def package_folder(package: int) -> str:
    """The name of the directory with a package's counters."""
    return f"mon_PERF_PKG_{package:02d}"


def _node_folder(node: int) -> str:
    return f"mon_sub_L3_{node:02d}"


def _counter_folder(group: Group, parent: Directory, name: str, owner: Caller) -> Directory:
    folder = Directory(name, stat.S_IMODE(parent.mode), owner, group)
    parent.add(folder)
    return folder


def _cpu_file(mounted: Mounted, group: Group, name: str, owner: Caller, *, as_list: bool) -> File:
    return File(
        name,
        0o644,
        owner,
        lambda: cpu_files.show(mounted, group, as_list=as_list),
        lambda data, caller: cpu_files.store(mounted, group, data, as_list=as_list),
    )


def _counter_files(
    mounted: Mounted, group: Group, domains: Callable[[], Sequence[int]], owner: Caller
) -> Iterator[File]:
    def shows(event: str) -> Callable[[], str]:
        return lambda: mounted.hardware.counters.read(_rmids(mounted, group), domains(), event) + "\n"

    monitoring = mounted.hardware.profile.monitoring
    for event in monitoring.events if monitoring else ():
        yield File(event, 0o444, owner, shows(event), writable=False)


def _package_file(mounted: Mounted, group: Group, package: int, event: str, owner: Caller) -> File:
    def show() -> str:
        return mounted.hardware.package_counters.read(_rmids(mounted, group), package, event) + "\n"

    return File(event, 0o444, owner, show, writable=False)


def _rmids(mounted: Mounted, group: Group) -> list[int]:
    """Whose counters a group's files add up, once they are up to date: a control group's are those of all within."""
    sampling.sample(mounted.hardware, mounted)
    return [group.rmid, *(child.rmid for child in group.children)]


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
