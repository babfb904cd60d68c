# SPDX-License-Identifier: Apache-2.0
"""What the servers on a host were promised, by their flavors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import nova.conf
from nova import context as nova_context
from nova import objects
from nova.compute import power_state

from nova_plugin.scheduler import demand, options
from nova_plugin.scheduler.demand import NONE_TAKEN, NOTHING, Amount, Taken
from nova_plugin.scheduler.moves import Host, Move, Moves
from vmqos.extra_specs import CacheRequest

CONF = nova.conf.CONF
options.register(CONF)

BATCH = 500
"""How many servers are read from the database at once."""

WITHOUT_PROCESS = frozenset({power_state.SHUTDOWN, power_state.CRASHED, power_state.SUSPENDED})
"""States of servers that have no process on their host, and so keep no class there."""

Key = tuple[str, str]
"""A server and its host: a server that was resized meanwhile is read again where it went."""


Coming = Mapping[str, Mapping[str, Taken]]
"""What servers take that are on their way to a host: by the UUID of the compute node, and by the server's own."""

_NONE_COMING: Coming = {}


class Promised(NamedTuple):
    """What the servers on a host were promised.

    :ivar amount: what is their own.
    :ivar classes: what the classes grant that they share.
    """

    amount: Amount = NOTHING
    classes: frozenset[CacheRequest] = frozenset()


_NONE_PROMISED = Promised()


def _read_no_moves(_: str) -> Moves:
    return {}


class _Sum:
    """What servers take together, while they are gone through."""

    __slots__ = ("classes", "groups", "ways")

    def __init__(self) -> None:
        self.ways = self.groups = 0
        self.classes: set[CacheRequest] = set()

    def add(self, taken: Taken, leaves: bool) -> None:
        """:param leaves: whether the server gives back what is its own."""
        if taken.shared_class is not None:
            self.classes.add(taken.shared_class)
        elif not leaves:
            self.ways += taken.amount.ways
            self.groups += taken.amount.classes

    @property
    def promised(self) -> Promised:
        """All of it."""
        return Promised(Amount(self.ways, self.groups), frozenset(self.classes))


class Promises:
    """What servers take, by the flavor that they were made or resized with.

    A HostState has the servers as nova-compute sent them, with or without their flavor, or merely their UUIDs. Flavors
    that are missing are read from the cells' databases, many at a time, and remembered for ``flavor_lifetime`` at
    least and twice that time at most. The sum of a host is used again as long as its servers are those that were
    summed up: hosts are many, and few of their servers change between two requests.

    :param read: reads the extra specs of servers, by UUID, from the database of a cell.
    :param clock: seconds, ever rising.
    :param moving: reads which servers of a cell are being moved.
    """

    def __init__(
        self,
        read: Callable[[str, list[str]], Mapping[str, Mapping[str, str]]],
        clock: Callable[[], float] = time.monotonic,
        moving: Callable[[str], Moves] = _read_no_moves,
    ) -> None:
        self._read = read
        self._clock = clock
        self._moving = moving
        self._known: dict[Key, Taken] = {}
        self._older: dict[Key, Taken] = {}
        self._turned = clock()
        self._sums: dict[str, tuple[tuple[Any, ...], Promised]] = {}
        self._moves: dict[str, tuple[float, Moves]] = {}
        """By cell: when they were read, and what was found."""

    def on(self, hosts: Sequence[Any], without: str, coming: Coming = _NONE_COMING) -> list[Promised]:
        """What the servers on each of the hosts take, and those that are on their way there or may come back.

        A stub that the scheduler itself put there, for a server that it placed a moment ago, takes nothing here: such a
        server is among those on their way.

        :param hosts: HostStates.
        :param without: the UUID of the server that is to be placed: it takes nothing of its own of the host that it
            comes from, for what it has there, it gives back. The class that it is in exists there even so.
        :param coming: servers that the scheduler placed a moment ago; those that are on their host by now count once.
        """
        self._turn()
        # Otherwise Nova makes the objects of all servers anew for each request, and there is nothing but UUIDs in them.
        is_tracked = CONF.filter_scheduler.track_instance_changes
        sums, found, unknown = self._sums, list[Promised](), list[tuple[int, Any, tuple[Any, ...]]]()
        for host in hosts:
            servers = host.instances
            there = tuple(servers.values() if is_tracked else servers)
            known = sums.get(host.host)
            if known is None or known[0] != there or without in servers:
                unknown.append((len(found), host, there))
                found.append(_NONE_PROMISED)
            else:
                found.append(known[1])
        if unknown:
            counted = self._count([host for _, host, _ in unknown], without)
            for (index, host, there), promised in zip(unknown, counted, strict=True):
                found[index] = promised
                if without not in host.instances:
                    sums[host.host] = (there, promised)
        moves = self._moves_of({host.cell_uuid for host in hosts})
        if not (coming or moves):
            return found
        return [
            _with(promised, host, coming.get(host.uuid, {}), moves.get((host.host, host.nodename), {}), without)
            for host, promised in zip(hosts, found, strict=True)
        ]

    def outdate(self, age: float) -> bool:
        """Have it read anew which servers are being moved, where any were and that is older; whether it is of any cell.

        :param age: seconds.
        """
        now = self._clock()
        older = [cell for cell, (read_at, moves) in list(self._moves.items()) if moves and now - read_at > age]
        for cell in older:
            self._moves.pop(cell, None)
        return bool(older)

    def _moves_of(self, cells: Iterable[str]) -> dict[Host, Mapping[str, Move]]:
        """What servers of the cells take that are being moved, by host."""
        found: dict[Host, Mapping[str, Move]] = {}
        for cell in cells:
            now = self._clock()
            read_at, moves = self._moves.get(cell, (-math.inf, {}))
            if now - read_at >= CONF.vmqos.inventory_lifetime:
                read_at, moves = self._moves[cell] = now, self._moving(cell)
            # A resize from one cell to another is told by both.
            for host, servers in moves.items():
                found[host] = {**found.get(host, {}), **servers}
        return found

    def _count(self, hosts: Sequence[Any], without: str) -> list[Promised]:
        """Go through the servers of each of the hosts."""
        sums: list[_Sum] = []
        missing: dict[str, list[tuple[_Sum, Key]]] = {}
        for host in hosts:
            total = _Sum()
            sums.append(total)
            # A copy: the scheduler's other threads change the servers of a host meanwhile.
            for uuid, instance in list(host.instances.items()):
                key = (uuid, host.host)
                taken = _told(instance)
                if taken is None:
                    taken = self._remembered(key)
                if taken is not None:
                    total.add(taken, leaves=uuid == without)
                elif instance._context is not None:
                    missing.setdefault(host.cell_uuid, []).append((total, key))
        for cell, places in missing.items():
            for (total, key), taken in zip(places, self._look_up(cell, [key for _, key in places]), strict=True):
                total.add(taken, leaves=key[0] == without)
        return [total.promised for total in sums]

    def _look_up(self, cell: str, keys: Sequence[Key]) -> Iterator[Taken]:
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            found = self._read(cell, [uuid for uuid, _ in batch])
            for key in batch:
                self._known[key] = demand.taken_by(found.get(key[0], {}))
                yield self._known[key]

    def _remembered(self, key: Key) -> Taken | None:
        known = self._known.get(key)
        return self._older.get(key) if known is None else known

    def _turn(self) -> None:
        """Forget what is too old, a generation at a time."""
        now = self._clock()
        if now - self._turned >= CONF.vmqos.flavor_lifetime:
            self._older, self._known, self._turned = self._known, {}, now
            self._sums = {}


def read_from_cell(cell: str, uuids: list[str]) -> Mapping[str, Mapping[str, str]]:
    """The extra specs that servers were made or resized with, by UUID; without those that are gone.

    :param cell: the UUID of the cell whose database has them.
    """
    context = nova_context.get_admin_context()
    mapping = objects.CellMapping.get_by_uuid(context, cell)
    found: dict[str, Mapping[str, str]] = {}
    with nova_context.target_cell(context, mapping) as targeted:
        # Hidden is a server that waits, in another cell, for its resize to be confirmed: its old host lists it still.
        for hidden in (False, True):
            missing = [uuid for uuid in uuids if uuid not in found]
            if not missing:
                break
            filters = {"uuid": missing, "deleted": False, "soft_deleted": True, "hidden": hidden}
            for instance in objects.InstanceList.get_by_filters(targeted, filters, expected_attrs=["flavor"]):
                found[instance.uuid] = {} if _shares_nothing_now(instance) else demand.specs_of(instance.flavor)
    return found


def _with(
    promised: Promised, host: Any, coming: Mapping[str, Taken], moves: Mapping[str, Move], without: str
) -> Promised:
    """What servers on a host take, and those that are not counted there yet, or not any more, and may come.

    :param coming: servers that this scheduler placed a moment ago.
    :param moves: servers that are being moved.
    :param without: the UUID of the server that is to be placed.
    """
    if not (coming or moves):
        return promised
    total = _Sum()
    total.ways, total.groups = promised.amount
    total.classes = set(promised.classes)
    elsewhere = {uuid: move.taken for uuid, move in moves.items() if not move.adds}
    for uuid, taken in {**elsewhere, **coming}.items():
        if uuid != without and not tells_of(host, uuid):
            total.add(taken, leaves=False)
    for uuid, move in moves.items():
        if move.adds and uuid != without:
            total.add(move.taken, leaves=False)
    return total.promised


def tells_of(host: Any, server: str) -> bool:
    """Whether a host tells of a server; a stub that the scheduler itself put there tells nothing.

    :param host: a HostState.
    :param server: its UUID.
    """
    instance = host.instances.get(server)
    return instance is not None and (instance.obj_attr_is_set("flavor") or instance._context is not None)


def _told(instance: Any) -> Taken | None:
    """What the server takes, if nova-compute sent its flavor along."""
    if not instance.obj_attr_is_set("flavor"):
        return None
    return NONE_TAKEN if _shares_nothing_now(instance) else demand.taken_by(demand.specs_of(instance.flavor))


def _shares_nothing_now(instance: Any) -> bool:
    """Whether the server's promise is a shared one, and the server has no process that keeps the class on its host.

    An exclusive promise is counted even so: the server gets its ways again when it is started.
    """
    if not instance.obj_attr_is_set("power_state") or instance.power_state not in WITHOUT_PROCESS:
        return False
    return demand.taken_by(demand.specs_of(instance.flavor)).shared_class is not None
