# SPDX-License-Identifier: Apache-2.0
"""The ``cpus`` and ``cpus_list`` files of a group."""

from __future__ import annotations

import errno

from vmqos.simulator.files import pseudo_lock
from vmqos.simulator.files.state import Group, Mode, Mounted
from vmqos.simulator.kernel.cpus import format_list, format_mask, parse_list, parse_mask
from vmqos.simulator.kernel.numbers import refusal


def show(mounted: Mounted, group: Group, *, as_list: bool) -> str:
    """The content of ``cpus``, or of ``cpus_list``.

    :raises OSError: ``ENODEV`` for a pseudo-locked group whose cache is offline.
    """
    cpus = group.cpus
    if group.mode is Mode.LOCKED and group.region is not None:
        cpus = pseudo_lock.online_region(mounted, group.region).domain.cpus
    text = format_list(cpus) if as_list else format_mask(cpus, mounted.hardware.profile.topology.cpu_count)
    return text + "\n"


def store(mounted: Mounted, group: Group, data: str, *, as_list: bool) -> None:
    """Take one write (``rdtgroup_cpus_write``).

    :raises OSError: ``EINVAL``, ``ERANGE`` or ``EOVERFLOW``, the reason being in ``last_cmd_status``.
    """
    status = mounted.status
    if mounted.kernel.mkdir_clears_status:
        status.clear()
    if group.mode in (Mode.LOCKED, Mode.LOCK_SETUP):
        status.puts("Pseudo-locking in progress\n")
        raise refusal(errno.EINVAL)
    count = mounted.hardware.profile.topology.cpu_count
    text = data.partition("\0")[0]
    try:
        cpus = parse_list(text, count) if as_list else parse_mask(text, count)
    except OSError:
        status.puts("Bad CPU list/mask\n")
        raise
    if cpus - mounted.hardware.online:
        status.puts("Can only assign online CPUs\n")
        raise refusal(errno.EINVAL)
    if group.parent is not None:
        _give_to_monitoring(mounted, group, group.parent, set(cpus))
    else:
        _give_to_control(mounted, group, set(cpus))


def _give_to_monitoring(mounted: Mounted, group: Group, parent: Group, cpus: set[int]) -> None:
    if cpus - parent.cpus:
        mounted.status.puts("Can only add CPUs to mongroup that belong to parent\n")
        raise refusal(errno.EINVAL)
    for sibling in parent.children:
        if sibling is not group:
            sibling.cpus -= cpus - group.cpus
    group.cpus = cpus


def _give_to_control(mounted: Mounted, group: Group, cpus: set[int]) -> None:
    dropped, added = group.cpus - cpus, cpus - group.cpus
    if dropped and group is mounted.default:
        mounted.status.puts("Can't drop CPUs from default group\n")
        raise refusal(errno.EINVAL)
    mounted.default.cpus |= dropped
    for other in mounted.groups:
        if other is not group and other.cpus & added:
            other.cpus -= added
            for child in other.children:
                child.cpus &= other.cpus
    group.cpus = cpus
    for child in group.children:
        child.cpus = set()
