# SPDX-License-Identifier: Apache-2.0
"""Giving hardware counters to VMs whose traffic nothing counts, on machines that have fewer counters than groups."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from vmqos.agent.snapshot import Snapshot
from vmqos.resctrl import assignment, exceptions
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)


def assign_counters(filesystem: Filesystem, snapshot: Snapshot) -> int:
    """Assign what counters are free, VMs with a group of their own first, then those that came first.

    The caller holds the lock, exclusively. A VM that gets none is not counted and says so (``unassigned``); no other
    group's counter is taken away.

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
        # A group may be removed at any moment, and somebody else may take the last counter.
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
