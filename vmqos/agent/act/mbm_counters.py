# SPDX-License-Identifier: Apache-2.0
"""Assigning hardware counters to VMs whose traffic is not counted, on machines with fewer counters than groups."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from vmqos.agent.snapshot import Snapshot
from vmqos.resctrl import assignment, exceptions
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)


def assign_counters(filesystem: Filesystem, snapshot: Snapshot) -> int:
    """Assign the counters that are free, first to VMs with a control group of their own, then in order of arrival.

    The caller holds the lock, exclusively. The traffic of a VM that gets no counter is not counted, and its readings
    say so (``unassigned``). No counter is taken away from another group.

    :returns: how many were assigned.
    """
    try:
        assignments = assignment.find(filesystem)
        free = assignment.available(filesystem) if assignments is not None else {}
    except exceptions.ResctrlError as error:
        LOG.warning("how counters are assigned can't be read: %s", error)
        return 0
    if assignments is None:
        return 0
    assigned = 0
    for directory in _directories(snapshot):
        if not any(free.values()):
            break
        # A group may be removed at any moment, and another program may take the last counter.
        with contextlib.suppress(exceptions.ResctrlError):
            for gap in assignments.gaps(directory):
                if free.get(gap.cache):
                    assignments.assign(directory, gap)
                    free[gap.cache] -= 1
                    assigned += 1
                    LOG.info("count %s of %s on L3 cache %d", gap.event, directory, gap.cache)
    return assigned


def _directories(snapshot: Snapshot) -> Iterable[str]:
    order = sorted(
        (bool(group.monitoring), record.observed.vm.process.start_time, group.directory)
        for record in snapshot.vms.values()
        if record.tasks is not None and not record.unmonitored
        for group in (record.tasks.target, record.tasks.rest)
        if group is not None and group.directory
    )
    return (directory for _, _, directory in order)
