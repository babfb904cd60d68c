# SPDX-License-Identifier: Apache-2.0
"""What servers were promised, read from a database of Nova's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from nova import objects
from nova.compute import power_state

from nova_plugin.scheduler import promises
from nova_plugin.scheduler.demand import NOTHING, Amount
from nova_plugin.scheduler.promises import Promised, Promises
from tests.unit.nova_plugin.clouds import Cloud
from vmqos.extra_specs import CachePolicy, CacheRequest

TWO, THREE = {"hw:cache_ways": "2"}, {"hw:cache_ways": "3"}
SHARED = {"hw:cache_ways": "4", "hw:cache_policy": "shared"}
NODE = str(uuid4())


class Reader:
    """Reads the database, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.now = 0.0

    def read(self, cell: str, uuids: list[str]) -> Mapping[str, Mapping[str, str]]:
        self.asked.append(uuids)
        return promises.read_from_cell(cell, uuids)

    def promises(self) -> Promises:
        return Promises(self.read, lambda: self.now)


def amounts(known: Promises, hosts: list[Any], without: str = "") -> list[Amount]:
    return [promised.amount for promised in known.on(hosts, without)]


def test_servers_take_what_their_flavors_promise_whoever_tells(cloud: Cloud) -> None:
    reader = Reader()
    told = [cloud.server(TWO), cloud.server(SHARED), cloud.server({})]
    stubs = [cloud.server(THREE, stub=True), cloud.server({}, stub=True)]
    hosts = [cloud.host(NODE, *told), cloud.host(NODE, *told, *stubs), cloud.host(NODE)]
    assert amounts(reader.promises(), hosts) == [Amount(2, 1), Amount(5, 2), NOTHING]
    assert [set(uuids) for uuids in reader.asked] == [{stub.uuid for stub in stubs}]


def test_flavors_are_read_once_for_all_hosts_and_remembered(cloud: Cloud, option: Any) -> None:
    option("vmqos", flavor_lifetime=100)
    reader = Reader()
    known = reader.promises()
    hosts = [cloud.host(NODE, *(cloud.server(TWO, stub=True) for _ in range(3))) for _ in range(4)]
    assert amounts(known, hosts) == [Amount(6, 3)] * 4
    assert [len(uuids) for uuids in reader.asked] == [12]
    reader.now = 99
    assert amounts(known, hosts) == [Amount(6, 3)] * 4
    assert len(reader.asked) == 1
    reader.now = 150
    known.on(hosts, without="")
    assert len(reader.asked) == 1
    reader.now = 300
    known.on(hosts, without="")
    reader.now = 450
    known.on(hosts, without="")
    assert len(reader.asked) == 2


def test_a_flavor_that_was_stored_without_extra_specs_promises_nothing(cloud: Cloud) -> None:
    server = cloud.server(TWO)
    del server.flavor.extra_specs
    server.flavor.obj_reset_changes()
    server.flavor = server.flavor
    server.save()
    stub = objects.Instance(cloud.context, uuid=server.uuid)
    hosts = [cloud.host(NODE, one, cloud.server(THREE, stub=True)) for one in (server, stub)]
    assert amounts(Reader().promises(), hosts) == [Amount(3, 1)] * 2


def test_many_servers_are_read_in_batches(cloud: Cloud) -> None:
    reader = Reader()
    context = cloud.context
    stubs = [objects.Instance(context, uuid=str(uuid4())) for _ in range(promises.BATCH)]
    host = cloud.host(NODE, *stubs, cloud.server(TWO, stub=True))
    assert amounts(reader.promises(), [host]) == [Amount(2, 1)]
    assert [len(uuids) for uuids in reader.asked] == [promises.BATCH, 1]


def test_each_cell_is_asked_for_its_own(cloud: Cloud, nova_conf: Any) -> None:
    cells: list[str] = []

    def read(cell: str, uuids: list[str]) -> Mapping[str, Mapping[str, str]]:
        cells.append(cell)
        return promises.read_from_cell(cell, uuids)

    with Cloud.with_cell(nova_conf.database.connection) as other:
        hosts = [cloud.host(NODE, cloud.server(TWO, stub=True)), other.host(NODE, other.server(THREE, stub=True))]
        assert amounts(Promises(read), hosts) == [Amount(2, 1), Amount(3, 1)]
        assert cells == [cloud.cell, other.cell]


def test_a_server_that_was_resized_to_another_host_is_read_again_there(cloud: Cloud) -> None:
    known = Reader().promises()
    stub = cloud.server(TWO, stub=True)
    assert amounts(known, [cloud.host(NODE, stub)]) == [Amount(2, 1)]
    resized = objects.Instance.get_by_uuid(cloud.context, stub.uuid, expected_attrs=["flavor"])
    resized.flavor.extra_specs = THREE
    resized.save()
    assert amounts(known, [cloud.host(NODE, stub)]) == [Amount(3, 1)]


def test_the_server_that_is_to_be_placed_does_not_count_and_neither_does_the_schedulers_own_stub(cloud: Cloud) -> None:
    reader = Reader()
    mine, stub = cloud.server(THREE), objects.Instance(uuid=str(uuid4()))
    host = cloud.host(NODE, mine, cloud.server(TWO), stub)
    assert amounts(reader.promises(), [host], without=mine.uuid) == [Amount(2, 1)]
    assert reader.asked == []


def test_a_deleted_server_counts_no_more_and_a_soft_deleted_one_does(cloud: Cloud) -> None:
    gone, kept = cloud.server(THREE), cloud.server(TWO)
    gone.destroy()
    kept.vm_state = "soft-delete"
    kept.save()
    stubs = [objects.Instance(cloud.context, uuid=server.uuid) for server in (gone, kept)]
    assert amounts(Reader().promises(), [cloud.host(NODE, *stubs)]) == [Amount(2, 1)]


def test_the_classes_of_a_host_are_those_of_its_servers_the_one_that_is_to_be_placed_included(cloud: Cloud) -> None:
    percent = {"hw:mem_bandwidth_percent": "20"}
    mine = cloud.server(SHARED)
    told = cloud.host(NODE, mine, cloud.server(TWO), cloud.server({**SHARED, "hw:cache_vcpus": "0"}))
    read = cloud.host(NODE, cloud.server(percent, stub=True), cloud.server(percent, stub=True), cloud.server(SHARED))
    cap, limit = CacheRequest(4, CachePolicy.SHARED), CacheRequest(bandwidth_percent=20)
    assert Reader().promises().on([told, read, cloud.host(NODE)], without=mine.uuid) == [
        Promised(Amount(2, 1), frozenset({cap})),
        Promised(NOTHING, frozenset({cap, limit})),
        Promised(),
    ]


@pytest.mark.parametrize("stub", [False, True], ids=["told by nova-compute", "read from the database"])
@pytest.mark.parametrize(
    ("state", "there"),
    [
        (power_state.RUNNING, True),
        (power_state.PAUSED, True),
        (power_state.NOSTATE, True),
        (power_state.SHUTDOWN, False),
        (power_state.SUSPENDED, False),
        (power_state.CRASHED, False),
    ],
)
def test_only_a_server_that_has_a_process_keeps_its_class(cloud: Cloud, state: int, there: bool, stub: bool) -> None:
    shared, own = cloud.server(SHARED), cloud.server(TWO)
    for server in (shared, own):
        server.power_state = state
        server.save()
    if stub:
        shared, own = (objects.Instance(cloud.context, uuid=server.uuid) for server in (shared, own))
    (promised,) = Reader().promises().on([cloud.host(NODE, shared, own)], without="")
    assert promised.classes == (frozenset({CacheRequest(4, CachePolicy.SHARED)}) if there else frozenset())
    assert promised.amount == Amount(2, 1)
