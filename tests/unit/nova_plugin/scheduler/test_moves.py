# SPDX-License-Identifier: Apache-2.0
"""What servers take that are on their way, read from a database of Nova's as its services leave it in between."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from nova import objects
from nova.compute import task_states, vm_states

from nova_plugin.scheduler import moves, promises
from nova_plugin.scheduler.demand import NOTHING, Amount
from nova_plugin.scheduler.filters import CacheWaysFilter
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.rooms import Rooms
from tests.unit.nova_plugin.clouds import Cloud, Placement, flavor, request

ONE, TWO, FOUR = ({"hw:cache_ways": ways} for ways in "124")
SHARED = {"hw:cache_ways": "4", "hw:cache_policy": "shared"}


class Move:
    """A server that goes from one host to another.

    :ivar server: as the database has it.
    """

    def __init__(self, cloud: Cloud, before: dict[str, str], after: dict[str, str], kind: str = "resize") -> None:
        self.server = cloud.server(before)
        self.source, self.target = cloud.host(str(uuid4())), cloud.host(str(uuid4()))
        self.migration = objects.Migration(
            cloud.context,
            instance_uuid=self.server.uuid,
            source_compute=self.source.host,
            source_node=self.source.nodename,
            migration_type=kind,
            status="pre-migrating",
        )
        self.migration.create()
        self.server.old_flavor, self.server.new_flavor = flavor(before), flavor(after)
        self.goes_to(self.target)

    def goes_to(self, target: Any) -> None:
        self.target = target
        self.migration.dest_compute, self.migration.dest_node = target.host, target.nodename
        self.migration.save()

    def is_at(self, *, status: str, task: str | None, vm: str = vm_states.ACTIVE, arrived: bool = False) -> None:
        """The database at a moment of the move; the host that the server is on lists it."""
        self.migration.status = status
        self.migration.save()
        self.server.task_state, self.server.vm_state = task, vm
        if arrived and self.server.new_flavor is not None:
            self.server.flavor = self.server.new_flavor
        self.server.save()
        for host, lists in ((self.source, not arrived), (self.target, arrived)):
            host.instances = {self.server.uuid: self.server} if lists else {}

    def amounts(self, without: str = "") -> list[Amount]:
        """What is taken of the source and the target."""
        known = Promises(promises.read_from_cell, moving=moves.read_from_cell)
        return [promised.amount for promised in known.on([self.source, self.target], without)]


def test_the_source_of_a_resize_keeps_room_for_a_revert_until_the_resize_is_confirmed(cloud: Cloud) -> None:
    move = Move(cloud, TWO, FOUR)
    each = [Amount(2, 1), Amount(4, 1)]
    move.is_at(status="pre-migrating", task=task_states.RESIZE_PREP)
    assert move.amounts() == each
    move.is_at(status="migrating", task=task_states.RESIZE_MIGRATING)
    assert move.amounts() == each
    move.is_at(status="post-migrating", task=task_states.RESIZE_FINISH, arrived=True)
    assert move.amounts() == each
    move.is_at(status="finished", task=None, vm=vm_states.RESIZED, arrived=True)
    assert move.amounts() == each
    move.is_at(status="reverting", task=task_states.RESIZE_REVERTING, vm=vm_states.RESIZED, arrived=True)
    assert move.amounts() == each
    move.server.old_flavor = move.server.new_flavor = None
    move.is_at(status="confirmed", task=None, arrived=True)
    assert move.amounts() == [NOTHING, Amount(4, 1)]


def test_a_long_live_migration_takes_of_its_target_too(cloud: Cloud) -> None:
    move = Move(cloud, TWO, TWO, kind="live-migration")
    move.server.old_flavor = move.server.new_flavor = None
    move.is_at(status="running", task=task_states.MIGRATING)
    assert move.amounts() == [Amount(2, 1), Amount(2, 1)]
    move.is_at(status="running", task=task_states.MIGRATING, arrived=True)
    assert move.amounts() == [NOTHING, Amount(2, 1)], "nothing brings it back"


def test_a_resize_on_the_same_host_takes_the_more_of_both(cloud: Cloud) -> None:
    move = Move(cloud, FOUR, ONE)
    move.goes_to(move.source)
    move.is_at(status="finished", task=None, vm=vm_states.RESIZED, arrived=True)
    assert move.amounts()[0] == Amount(4, 1)


def test_a_server_that_shares_a_class_takes_nothing_of_its_own_and_the_class_where_it_goes(cloud: Cloud) -> None:
    move = Move(cloud, SHARED, SHARED)
    move.is_at(status="migrating", task=task_states.RESIZE_MIGRATING)
    known = Promises(promises.read_from_cell, moving=moves.read_from_cell)
    source, target = known.on([move.source, move.target], "")
    assert source.amount == target.amount == NOTHING and source.classes == target.classes != frozenset()


def test_the_server_that_is_to_be_placed_does_not_count(cloud: Cloud) -> None:
    move = Move(cloud, TWO, FOUR)
    move.is_at(status="pre-migrating", task=task_states.RESIZE_PREP)
    assert move.amounts(without=move.server.uuid) == [NOTHING, NOTHING]


def test_servers_without_a_promise_and_those_at_rest_are_not_looked_up(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Move(cloud, {}, {})
    plain.is_at(status="finished", task=None, vm=vm_states.RESIZED, arrived=True)
    cloud.server(TWO)
    monkeypatch.setattr(objects.MigrationList, "get_by_filters", None)
    assert moves.read_from_cell(cloud.cell) == {}


def test_the_database_is_asked_once_in_a_while(cloud: Cloud, option: Any) -> None:
    option("vmqos", inventory_lifetime=10)
    asked: list[str] = []
    now = [0.0]

    def read(cell: str) -> moves.Moves:
        asked.append(cell)
        return {}

    known = Promises(promises.read_from_cell, lambda: now[0], read)
    hosts = [cloud.host(str(uuid4())), cloud.host(str(uuid4()))]
    for now[0] in (0.0, 9.0, 10.0):
        known.on(hosts, "")
    assert asked == [cloud.cell, cloud.cell]


def test_no_server_gets_the_ways_that_a_revert_needs(cloud: Cloud, placement: Placement, rooms: Rooms) -> None:
    move = Move(cloud, FOUR, ONE)
    move.source.uuid = placement.compute_node(ways=6)
    ours = CacheWaysFilter(rooms)
    move.is_at(status="finished", task=None, vm=vm_states.RESIZED, arrived=True)
    assert ours.filter_all([move.source], request(FOUR)) == []
    assert ours.filter_all([move.source], request(TWO)) == [move.source]
