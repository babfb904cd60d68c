# SPDX-License-Identifier: Apache-2.0
"""Assigning hardware counters to VMs whose traffic is not counted, on machines with fewer counters than groups."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set

from vmqos.agent.act.turns import Turn, next_turn
from vmqos.agent.snapshot import Snapshot
from vmqos.resctrl import assignment, exceptions
from vmqos.resctrl.assignment import Assignments, Slot
from vmqos.resctrl.filesystem import Filesystem

LOG = logging.getLogger(__name__)

SHORTEST_TURN = 5.0
"""Seconds of a turn at the least."""

SWEEPS = 3
"""How many sweeps a turn has at the least: two make a bandwidth, and the first one may find no value yet."""

LOCK_PATIENCE = 0.5
"""Seconds to wait for the lock on resctrl. After the next sweep is early enough, too."""

Groups = Mapping[str, tuple[str, ...]]
"""The directories of the groups that count each VM, by UUID, in the order in which the VMs get counters."""


def assign_counters(filesystem: Filesystem, snapshot: Snapshot) -> int:
    """Assign the counters that are free, first to VMs with a control group of their own, then in order of arrival.

    The caller holds the lock, exclusively. The traffic of a VM that gets no counter is not counted until its turn
    comes (:class:`CounterTurns`), and its readings say so (``unassigned``). No other group loses a counter.

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
    for directories in counted_groups(snapshot).values():
        for directory in directories:
            if not any(free.values()):
                return assigned
            # A group may be removed at any moment, and another program may take the last counter.
            with contextlib.suppress(exceptions.ResctrlError):
                for slot, is_counted in assignments.slots(directory).items():
                    if not is_counted and free.get(slot.cache):
                        assignments.assign(directory, slot)
                        free[slot.cache] -= 1
                        assigned += 1
                        LOG.info("count %s of %s on L3 cache %d", slot.event, directory, slot.cache)
    return assigned


def counted_groups(snapshot: Snapshot) -> Groups:
    """The groups in which the VMs are counted, those of VMs with a control group of their own first."""
    found = {}
    for uuid, record in snapshot.vms.items():
        if record.tasks is None or record.unmonitored:
            continue
        groups = [group for group in (record.tasks.target, record.tasks.rest) if group is not None and group.directory]
        if groups:
            order = bool(groups[0].monitoring), record.observed.vm.process.start_time, uuid
            found[uuid] = order, tuple(group.directory for group in groups)
    return {uuid: directories for uuid, (_, directories) in sorted(found.items(), key=lambda item: item[1])}


class CounterTurns:
    """Has VMs take turns where there are fewer counters than VMs.

    Only counters that are free or that count VMs are given: those of other programs' groups, of the default group and
    of classes stay where they are. Nothing is read or written while every VM has its counters.

    :param filesystem: resctrl.
    :param length: seconds of a turn, :data:`SHORTEST_TURN` at the least; 0: there are no turns.
    :param groups: the VMs' groups as they are now.
    :param clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        length: float,
        groups: Callable[[], Groups],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._filesystem = filesystem
        self._length = max(length, SHORTEST_TURN) if length > 0 else 0.0
        self._groups = groups
        self._clock = clock
        self._line: tuple[str, ...] = ()
        self._began = clock()
        self._sweeps = 0
        self._is_taking_turns = False

    def after_sweep(self, is_waiting: bool) -> None:
        """End the turn if it is over. No sweep may be under way: a group's counters would be read half before.

        :param is_waiting: whether the sweep found a VM without a counter.
        """
        self._sweeps += 1
        if not self._length or not is_waiting:
            self._is_taking_turns &= is_waiting
            return
        if self._sweeps < SWEEPS or self._clock() - self._began < self._length:
            return
        try:
            assignments = assignment.find(self._filesystem)
            if assignments is None:
                return
            # A host may have a thousand groups: they are read before the lock is taken.
            groups = self._groups()
            vms = _read(assignments, groups)
            turn = self._next_turn(vms, assignment.available(self._filesystem))
            if turn.served:
                have = {uuid for uuid, slots in vms.items() if any(any(states.values()) for states in slots.values())}
                concerned = {uuid: groups[uuid] for uuid in vms if uuid in have | turn.served}
                with self._filesystem.lock(exclusive=True, timeout=LOCK_PATIENCE):
                    _change(assignments, concerned, turn.served)
                self._line = turn.line
        except exceptions.LockTimeout:
            return
        except exceptions.ResctrlError as error:
            LOG.warning("no turn of the hardware counters: %s", error)
        # The turn begins when its counters count.
        self._began, self._sweeps = self._clock(), 0

    def _next_turn(self, vms: Mapping[str, Mapping[str, Mapping[Slot, bool]]], free: Mapping[int, int]) -> Turn:
        """Whose turn it is."""
        needs = {uuid: len(slots) for uuid, slots in vms.items()}
        line = self._line
        if not line:
            # Who has counters had the turn before the first one.
            line = tuple(sorted(needs, key=lambda uuid: all(map(all, (s.values() for s in vms[uuid].values())))))
        room = _room(vms, free)
        turn = next_turn(line, needs, room)
        if turn.served and not self._is_taking_turns:
            self._is_taking_turns = True
            LOG.info(
                "there are hardware counters for %d of %d groups of VMs: they take turns of %g s",
                room,
                sum(needs.values()),
                self._length,
            )
        return turn


def _change(assignments: Assignments, concerned: Groups, served: Set[str]) -> None:
    """Take the counters that other VMs have, and give them to those whose turn it is; the caller holds the lock.

    What a pass has changed since the groups were read is seen here, or refused by the kernel and seen by the next turn.

    :param concerned: the groups of the VMs that have counters, and of those whose turn it is.
    :param served: the UUIDs of the latter.
    """
    LOG.debug("hardware counters count %s", ", ".join(sorted(served)))
    vms = _read(assignments, concerned)
    for is_served, act in ((False, assignments.take), (True, assignments.assign)):
        for uuid, groups in vms.items():
            if (uuid in served) is is_served:
                for directory, slots in groups.items():
                    _act_on(directory, [slot for slot, counts in slots.items() if counts is not is_served], act)


def _read(assignments: Assignments, groups: Groups) -> dict[str, dict[str, dict[Slot, bool]]]:
    """What can be counted of each VM by group; a VM with a group that is gone takes no part."""
    found = assignments.slots_of_all([directory for directories in groups.values() for directory in directories])
    return {
        uuid: {directory: found[directory] for directory in directories}
        for uuid, directories in groups.items()
        if found.keys() >= set(directories)
    }


def _room(vms: Mapping[str, Mapping[str, Mapping[Slot, bool]]], free: Mapping[int, int]) -> int:
    """How many groups of VMs can be counted at once, all their events on all caches."""
    every = [slots for groups in vms.values() for slots in groups.values()]
    have = Counter(slot.cache for slots in every for slot, counts in slots.items() if counts)
    need = Counter(slot.cache for slot in {slot for slots in every for slot in slots})
    return min(((have[cache] + free.get(cache, 0)) // events for cache, events in need.items()), default=0)


def _act_on(directory: str, slots: list[Slot], act: Callable[[str, Slot], None]) -> None:
    """Take or assign these counters of a group, which may be gone; the next turn finds what the kernel refused."""
    try:
        for slot in slots:
            act(directory, slot)
    except exceptions.ResctrlError as error:
        LOG.debug("a hardware counter of %s stays as it is: %s", directory, error)
