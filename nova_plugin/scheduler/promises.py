# SPDX-License-Identifier: Apache-2.0
"""What the servers on a host were promised, by their flavors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import objects

from nova_plugin.scheduler import demand, options
from nova_plugin.scheduler.demand import NOTHING, Amount

CONF = nova.conf.CONF
options.register(CONF)

BATCH = 500
"""How many servers are read from the database at once."""

Key = tuple[str, str]
"""A server and its host: a server that was resized meanwhile is read again where it went."""


class Promises:
    """What servers take, by the flavor that they were made or resized with.

    A HostState has the servers as nova-compute sent them, with or without their flavor, or merely their UUIDs. Flavors
    that are missing are read from the cells' databases, many at a time, and remembered for ``flavor_lifetime`` at
    least and twice that time at most.

    :param read: reads the extra specs of servers, by UUID, from the database of a cell.
    :param clock: seconds, ever rising.
    """

    def __init__(
        self,
        read: Callable[[str, list[str]], Mapping[str, Mapping[str, str]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._known: dict[Key, Amount] = {}
        self._older: dict[Key, Amount] = {}
        self._turned = clock()

    def on(self, hosts: Iterable[Any], without: str) -> list[Amount]:
        """What the servers on each of the hosts take.

        A stub that the scheduler itself put there, for a server that it placed a moment ago, takes nothing here.

        :param hosts: HostStates.
        :param without: the UUID of the server that is to be placed: it takes nothing of the host that it comes from,
            for what it has there, it gives back.
        """
        self._turn()
        totals: list[Amount] = []
        missing: dict[str, list[tuple[int, Key]]] = {}
        for host in hosts:
            ways = classes = 0
            # A copy: the scheduler's other threads change the servers of a host meanwhile.
            for uuid, instance in list(host.instances.items()):
                if uuid == without:
                    continue
                key = (uuid, host.host)
                taken = _told(instance)
                if taken is None:
                    taken = self._remembered(key)
                if taken is not None:
                    ways += taken.ways
                    classes += taken.classes
                elif instance._context is not None:
                    missing.setdefault(host.cell_uuid, []).append((len(totals), key))
            totals.append(Amount(ways, classes))
        for cell, places in missing.items():
            for (place, _), taken in zip(places, self._look_up(cell, [key for _, key in places]), strict=True):
                totals[place] = Amount(totals[place].ways + taken.ways, totals[place].classes + taken.classes)
        return totals

    def _look_up(self, cell: str, keys: Sequence[Key]) -> Iterator[Amount]:
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            found = self._read(cell, [uuid for uuid, _ in batch])
            for key in batch:
                self._known[key] = demand.taken_by(found.get(key[0], {}))
                yield self._known[key]

    def _remembered(self, key: Key) -> Amount | None:
        known = self._known.get(key)
        return self._older.get(key) if known is None else known

    def _turn(self) -> None:
        """Forget what is too old, a generation at a time."""
        now = self._clock()
        if now - self._turned >= CONF.vmqos.flavor_lifetime:
            self._older, self._known, self._turned = self._known, {}, now


def read_from_cell(cell: str, uuids: list[str]) -> dict[str, dict[str, str]]:
    """The extra specs that servers were made or resized with, by UUID; without those that are gone.

    :param cell: the UUID of the cell whose database has them.
    """
    context = nova_context.get_admin_context()
    mapping = objects.CellMapping.get_by_uuid(context, cell)
    with nova_context.target_cell(context, mapping) as targeted:
        filters = {"uuid": uuids, "deleted": False, "soft_deleted": True}
        instances = objects.InstanceList.get_by_filters(targeted, filters, expected_attrs=["flavor"])
    return {instance.uuid: instance.flavor.extra_specs for instance in instances}


def _told(instance: Any) -> Amount | None:
    """What the server takes, if nova-compute sent its flavor along."""
    if not instance.obj_attr_is_set("flavor"):
        return None
    flavor = instance.flavor
    return demand.taken_by(flavor.extra_specs) if flavor.obj_attr_is_set("extra_specs") else NOTHING
