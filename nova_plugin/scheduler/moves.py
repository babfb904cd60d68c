# SPDX-License-Identifier: Apache-2.0
"""The servers that are being moved, or whose resize is neither confirmed nor reverted: they take of two hosts.

Nova lists a server on one host at a time. The other one is where it will be, or where a revert brings it back to.

A server that is resized to another cell is in both cells' databases until that is confirmed. In one of them it is
hidden: in the new cell's on its way, and in the old one's after that (``nova.conductor.tasks.cross_cell_migrate``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nova import context as nova_context
from nova import objects
from nova.compute import task_states, vm_states

from nova_plugin.scheduler import demand
from nova_plugin.scheduler.demand import NOTHING, Amount, Taken

MOVING = (*task_states.resizing_states, task_states.MIGRATING)
"""The task states of servers on their way; that a resize waits to be confirmed is a state of the VM."""

UNDER_WAY = (
    "accepted",
    "queued",
    "preparing",
    "running",
    "pre-migrating",
    "migrating",
    "post-migrating",
    "finished",
    "reverting",
)
"""The states of a migration after which the server may still come to be on either host. Nova has no list of them."""

Host = tuple[str, str]
"""A host's name and its node's."""


class Move(NamedTuple):
    """What a server takes of a host.

    :ivar taken: what it takes.
    :ivar adds: whether that comes to what it takes as one of the servers on the host. If not, it counts only where the
        host does not have the server.
    """

    taken: Taken
    adds: bool = False


Moves = Mapping[Host, Mapping[str, Move]]
"""What servers take that are being moved: by host, and by the server's UUID."""


def read_from_cell(cell: str) -> Moves:
    """The servers of a cell that are being moved.

    The migrations that are under way are read at once: hundreds of resizes may wait to be confirmed, and Nova confirms
    none by itself unless ``resize_confirm_window`` says so.

    :param cell: the UUID of the cell whose database has them.
    """
    context = nova_context.get_admin_context()
    mapping = objects.CellMapping.get_by_uuid(context, cell)
    found: dict[Host, dict[str, Move]] = {}
    with nova_context.target_cell(context, mapping) as targeted:
        servers: dict[str, Any] = {}
        for which in ({"vm_state": vm_states.RESIZED}, {"task_state": list(MOVING)}, {"hidden": True}):
            filters = {**which, "deleted": False}
            for server in objects.InstanceList.get_by_filters(targeted, filters, expected_attrs=["flavor"]):
                if set(_before_and_after(server)) != {demand.NONE_TAKEN}:
                    servers[server.uuid] = server
        for uuid, migration in _under_way(targeted).items() if servers else ():
            if uuid in servers:
                for host, move in _of(servers[uuid], migration):
                    found.setdefault(host, {})[uuid] = move
    return found


def _under_way(context: Any) -> dict[str, Any]:
    """The newest migration of each server that has one under way, by the server's UUID."""
    found = objects.MigrationList.get_by_filters(context, {"status": list(UNDER_WAY)})
    return {migration.instance_uuid: migration for migration in sorted(found, key=lambda one: one.id)}


def _of(server: Any, migration: Any) -> Iterator[tuple[Host, Move]]:
    """What a server takes of the hosts that it comes from and goes to."""
    now = _taken(server.flavor)
    before, after = _before_and_after(server)
    source = migration.source_compute, migration.source_node
    target = migration.dest_compute, migration.dest_node
    if source == target:
        each = zip(before.amount, after.amount, now.amount, strict=True)
        yield source, Move(Taken(Amount(*(max(old, new) - is_now for old, new, is_now in each))), adds=True)
        return
    yield target, Move(after)
    # No live migration is reverted after it ended. A server that is resized has no process where it was, so that it
    # keeps no class there.
    if not migration.is_live_migration and before.amount != NOTHING:
        yield source, Move(Taken(before.amount))


def _before_and_after(server: Any) -> tuple[Taken, Taken]:
    """What a server takes by the flavor that it comes with, and by the one that it goes with."""
    before, after = (_taken(flavor or server.flavor) for flavor in (server.old_flavor, server.new_flavor))
    return before, after


def _taken(flavor: Any) -> Taken:
    return demand.taken_by(demand.specs_of(flavor))
