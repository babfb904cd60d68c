# SPDX-License-Identifier: Apache-2.0
"""What servers take that are on their way, read from a database of Nova's as its services leave it in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy
from nova import objects
from nova.compute import power_state, task_states, vm_states
from nova.conductor.tasks.cross_cell_migrate import TargetDBSetupTask
from nova.db.main import models as main_models

from nova_plugin.scheduler import moves, promises
from nova_plugin.scheduler.demand import NOTHING, Amount
from nova_plugin.scheduler.filters import CacheWaysFilter
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.recent import Recent
from nova_plugin.scheduler.rooms import Rooms
from tests.unit.clock import Clock
from tests.unit.nova_plugin.clouds import Cloud, Placement, flavor, request
from tests.unit.nova_plugin.scheduler.conftest import Asked

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


@pytest.fixture
def other_cell(tmp_path: Path) -> Iterator[Cloud]:
    """A cell with a database of its own."""
    database = f"sqlite:///{tmp_path}/other.db"
    engine = sqlalchemy.create_engine(database)
    main_models.BASE.metadata.create_all(engine)
    engine.dispose()
    with Cloud.with_cell(database) as made:
        yield made


class MoveToOtherCell(Move):
    """A resize to another cell, in whose database Nova's conductor makes a copy of the server.

    :ivar copy: the server there.
    """

    def __init__(self, cloud: Cloud, other_cell: Cloud, before: dict[str, str], after: dict[str, str]) -> None:
        super().__init__(cloud, before, after)
        self.goes_to(other_cell.host(str(uuid4())))
        self.server.host = self.source.host
        self.server.save()
        task = TargetDBSetupTask(cloud.context, self.server, self.migration, other_cell.context)
        self.copy, self.migration_of_copy = task.execute()

    def has(self, server: Any, *, shown: bool, task: str | None, vm: str = vm_states.ACTIVE) -> None:
        """The server in one of the databases at a moment of the move."""
        server.hidden, server.task_state, server.vm_state = not shown, task, vm
        server.save()

    def is_listed(self, stub: Any, *, arrived: bool = False) -> None:
        """The source lists the server as nova-scheduler reads it from the database, and so does the target later."""
        self.source.instances = {stub.uuid: stub} if stub is not None else {}
        self.target.instances = {self.copy.uuid: self.copy} if arrived else {}

    def each(self) -> list[Amount]:
        """What is taken of the source and the target, where each is asked for alone and where both are."""
        known = Promises(promises.read_from_cell, moving=moves.read_from_cell)
        both = [promised.amount for promised in known.on([self.source, self.target], "")]
        for host, found in zip((self.source, self.target), both, strict=True):
            alone = Promises(promises.read_from_cell, moving=moves.read_from_cell)
            assert [promised.amount for promised in alone.on([host], "")] == [found]
        return both


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "not listed since the scheduler's start"])
def test_a_resize_to_another_cell_takes_of_both_hosts_until_it_is_confirmed(
    cloud: Cloud, other_cell: Cloud, is_listed: bool
) -> None:
    move = MoveToOtherCell(cloud, other_cell, TWO, FOUR)
    each = [Amount(2, 1), Amount(4, 1)]
    stub = objects.Instance(cloud.context, uuid=move.server.uuid) if is_listed else None
    move.is_listed(stub)
    move.has(move.server, shown=True, task=task_states.RESIZE_PREP)
    move.has(move.copy, shown=False, task=task_states.RESIZE_PREP)
    assert move.each() == each
    move.migration.status, move.server.power_state = "post-migrating", power_state.SHUTDOWN
    move.migration.save()
    move.has(move.server, shown=True, task=task_states.RESIZE_MIGRATED)
    move.has(move.copy, shown=False, task=task_states.RESIZE_FINISH)
    assert move.each() == each
    move.migration_of_copy.status, move.copy.flavor = "finished", move.copy.new_flavor
    move.migration_of_copy.save()
    move.has(move.copy, shown=True, task=None, vm=vm_states.RESIZED)
    move.has(move.server, shown=False, task=task_states.RESIZE_MIGRATED)
    move.is_listed(stub, arrived=True)
    assert move.each() == each
    move.server.destroy(hard_delete=True)
    move.migration_of_copy.status = "confirmed"
    move.migration_of_copy.save()
    move.has(move.copy, shown=True, task=None)
    move.is_listed(None, arrived=True)
    assert move.each() == [NOTHING, Amount(4, 1)]


def test_what_two_cells_tell_of_a_host_is_counted_together(cloud: Cloud) -> None:
    told = {
        cell: {("host", "node"): {server: moves.Move(promises.demand.taken_by(specs))}}
        for cell, server, specs in (("a", "1", TWO), ("b", "2", FOUR))
    }
    known = Promises(promises.read_from_cell, moving=lambda cell: told[cell])
    host, elsewhere = cloud.host(str(uuid4())), cloud.host(str(uuid4()))
    host.host, host.nodename, host.cell_uuid, elsewhere.cell_uuid = "host", "node", "a", "b"
    assert [promised.amount for promised in known.on([host, elsewhere], "")] == [Amount(6, 2), NOTHING]


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


def test_the_migrations_of_all_servers_that_wait_to_be_confirmed_are_read_at_once(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = [Move(cloud, TWO, FOUR) for _ in range(3)]
    for move in each:
        move.is_at(status="finished", task=None, vm=vm_states.RESIZED, arrived=True)
    failed = {"instance_uuid": each[0].server.uuid, "migration_type": "resize", "status": "error"}
    objects.Migration(cloud.context, **failed).create()
    read, asked = objects.MigrationList.get_by_filters, list[Any]()

    def get_by_filters(context: Any, filters: Any) -> Any:
        asked.append(filters)
        return read(context, filters)

    monkeypatch.setattr(objects.MigrationList, "get_by_filters", get_by_filters)
    found = moves.read_from_cell(cloud.cell)
    assert len(asked) == 1
    for move in each:
        for host, ways in ((move.source, 2), (move.target, 4)):
            told = found[host.host, host.nodename]
            assert {uuid: one.taken.amount for uuid, one in told.items()} == {move.server.uuid: Amount(ways, 1)}


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


def test_what_a_resize_kept_is_free_when_it_is_confirmed(
    cloud: Cloud, placement: Placement, asked: Asked, clock: Clock
) -> None:
    """That it waits is used again for a while, and read anew where a request finds no room by it."""
    move = Move(cloud, FOUR, ONE)
    move.source.uuid = placement.compute_node(ways=6)
    known = Promises(promises.read_from_cell, clock, moves.read_from_cell)
    ours = CacheWaysFilter(Rooms(Inventory(lambda: asked, clock), known, Recent(lambda: asked, clock)))
    move.is_at(status="finished", task=None, vm=vm_states.RESIZED, arrived=True)
    assert ours.filter_all([move.source], request(FOUR)) == []
    move.is_at(status="confirmed", task=None, arrived=True)
    again = cloud.host(move.source.uuid)
    again.host, again.nodename = move.source.host, move.source.nodename
    clock.now += 2
    assert ours.filter_all([again], request(FOUR)) == [again]
