# SPDX-License-Identifier: Apache-2.0
"""Servers that were placed a moment ago, found where Placement has their allocations."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from keystoneauth1.exceptions import ConnectFailure
from nova import objects

from nova_plugin.scheduler import recent
from nova_plugin.scheduler.demand import Amount, Taken
from nova_plugin.scheduler.filters import CacheWaysFilter
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.recent import Recent
from nova_plugin.scheduler.rooms import Rooms
from tests.unit.clock import Clock
from tests.unit.nova_plugin.clouds import Cloud, Placement, request
from tests.unit.nova_plugin.scheduler.conftest import Asked

TWO = Taken(Amount(2, 1))


@pytest.fixture
def known(asked: Asked, clock: Clock) -> Recent:
    return Recent(lambda: asked, clock)


def claim(placement: Placement, *nodes: str, server: str = "") -> str:
    """Have Nova claim for a server on these nodes; the server's UUID.

    :param server: the UUID of one that it has claimed for; a new one if empty.
    """
    headers = {"OpenStack-API-Version": "placement 1.38"}
    before = placement.http.get(f"/allocations/{server}", headers=headers).json() if server else {}
    server = server or str(uuid4())
    held = {node: {"resources": {"VCPU": 1}} for node in nodes}
    body = {"allocations": held, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    body["consumer_generation"] = before.get("consumer_generation")
    placement.http.put(f"/allocations/{server}", json=body, headers=headers).raise_for_status()
    if not before:
        placement.claimed([server])
    return server


def test_a_server_is_found_where_nova_claimed_for_it_and_placement_is_asked_once(
    placement: Placement, known: Recent, asked: Asked
) -> None:
    node = placement.bare_node()
    server = claim(placement, node)
    known.note(server, TWO)
    for _ in range(3):
        assert known.by_provider(without="") == {node: {server: TWO}}
    assert asked.paths == [f"/allocations/{server}"]
    assert known.by_provider(without=server) == {}


def test_an_evacuated_server_is_found_where_it_goes_and_not_where_it_comes_from(
    placement: Placement, known: Recent, clock: Clock
) -> None:
    """Another request may come between the filter's answer and Nova's claim, as where a whole host is evacuated."""
    source, node = placement.bare_node(), placement.bare_node()
    server, lost = claim(placement, source), claim(placement, source)
    known.note(server, TWO, may_hold=True)
    known.note(lost, TWO, may_hold=True)
    assert known.by_provider(without="") == {}
    claim(placement, source, node, server=server)
    assert known.by_provider(without="") == {node: {server: TWO}}
    clock.now = recent.UNCLAIMED
    assert known.by_provider(without="") == {node: {server: TWO}}


def test_the_filter_counts_an_evacuated_server_where_it_goes(cloud: Cloud, placement: Placement, rooms: Rooms) -> None:
    ours, there = CacheWaysFilter(rooms), cloud.host(placement.compute_node(4))
    source = placement.bare_node()
    server = claim(placement, source)
    assert ours.host_passes(there, request({"hw:cache_ways": "3"}, server, ignore_hosts=["dead"]))
    # A look in between finds what the server holds of the host that died.
    assert ours.host_passes(cloud.host(there.uuid), request({"hw:cache_ways": "2"}))
    claim(placement, source, there.uuid, server=server)
    assert not ours.host_passes(cloud.host(there.uuid), request({"hw:cache_ways": "2"}))


def test_a_server_that_does_not_come_is_looked_for_again(
    cloud: Cloud, placement: Placement, known: Recent, asked: Asked, clock: Clock
) -> None:
    """Its build failed. Nova's conductor claims on another host then, if there is one, and asks no scheduler."""
    failed, other = placement.bare_node(), placement.bare_node()
    server, lost, came = (claim(placement, failed) for _ in range(3))
    for one in (server, lost, came):
        known.note(one, TWO)
    there = cloud.host(failed, objects.Instance(cloud.context, uuid=came))
    assert known.by_provider("", [there]) == {failed: {server: TWO, lost: TWO, came: TWO}}
    claim(placement, other, server=server)
    placement.http.delete(f"/allocations/{lost}").raise_for_status()
    placement._consumers.remove(lost)
    clock.now = recent.ASKED_AGAIN
    for _ in range(2):
        assert known.by_provider("", [there]) == {failed: {came: TWO}, other: {server: TWO}}
    assert len(asked.paths) == 5


def test_what_a_server_took_is_free_again_when_it_has_come_and_gone(
    cloud: Cloud, placement: Placement, rooms: Rooms
) -> None:
    """It was deleted or shelved, or its resize was reverted, within minutes of being placed."""
    ours, node = CacheWaysFilter(rooms), placement.compute_node(4)
    server = cloud.server({"hw:cache_ways": "3"})
    assert ours.host_passes(cloud.host(node), request({"hw:cache_ways": "3"}, server.uuid))
    claim(placement, node, server=server.uuid)
    placement.claimed([server.uuid])
    for there in (cloud.host(node), cloud.host(node, objects.Instance(uuid=server.uuid)), cloud.host(node, server)):
        assert not ours.host_passes(there, request({"hw:cache_ways": "2"}))
    assert ours.host_passes(cloud.host(node), request({"hw:cache_ways": "2"}))


def test_a_server_is_forgotten_after_its_time_and_sooner_if_nova_never_claimed_for_it(
    placement: Placement, known: Recent, asked: Asked, clock: Clock
) -> None:
    node = placement.bare_node()
    server, refused = claim(placement, node), str(uuid4())
    known.note(server, TWO)
    known.note(refused, TWO)
    assert known.by_provider(without="") == {node: {server: TWO}}
    clock.now = recent.UNCLAIMED
    asked.paths.clear()
    for _ in range(2):
        assert known.by_provider(without="") == {node: {server: TWO}}
    assert asked.paths == [f"/allocations/{refused}"]
    clock.now = recent.REMEMBERED
    assert known.by_provider(without="") == {}


def test_a_server_that_came_and_went_between_two_requests_keeps_no_other_one_away(
    cloud: Cloud, placement: Placement, asked: Asked, clock: Clock
) -> None:
    known = Promises(lambda *_: {}, clock)
    ours = CacheWaysFilter(Rooms(Inventory(lambda: asked, clock), known, Recent(lambda: asked, clock)))
    node = placement.compute_node(4)
    server = str(uuid4())
    assert ours.host_passes(cloud.host(node), request({"hw:cache_ways": "3"}, server))
    claim(placement, node, server=server)
    clock.now = 0.5
    assert not ours.host_passes(cloud.host(node), request({"hw:cache_ways": "2"})), "it is on its way"
    clock.now = 3.0
    assert not ours.host_passes(cloud.host(node), request({"hw:cache_ways": "2"})), "it still is"
    placement.http.delete(f"/allocations/{server}").raise_for_status()
    clock.now = 6.0
    assert ours.host_passes(cloud.host(node), request({"hw:cache_ways": "2"}))


@pytest.mark.parametrize("asked_at_once", [False, True])
def test_a_server_is_found_though_the_next_request_comes_when_nova_has_long_claimed(
    placement: Placement, known: Recent, clock: Clock, asked_at_once: bool
) -> None:
    """Its image may take minutes to come, and until then nothing else tells of the server.

    :param asked_at_once: whether another request came between the filter's answer and Nova's claim.
    """
    node, server = placement.bare_node(), str(uuid4())
    known.note(server, TWO)
    if asked_at_once:
        assert known.by_provider(without="") == {}
    claim(placement, node, server=server)
    placement.claimed([server])
    clock.now = 2 * recent.UNCLAIMED
    assert known.by_provider(without="") == {node: {server: TWO}}


def test_no_more_servers_are_remembered_than_allowed(
    placement: Placement, known: Recent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "MOST", 2)
    node = placement.bare_node()
    servers = [claim(placement, node) for _ in range(3)]
    for server in servers:
        known.note(server, TWO)
    assert known.by_provider(without="") == {node: dict.fromkeys(servers[1:], TWO)}


def test_without_placement_the_servers_are_found_later(placement: Placement, client: Any, clock: Clock) -> None:
    reachable = False

    def connect() -> Any:
        if not reachable:
            raise ConnectFailure("nobody listens")
        return client

    known, node = Recent(connect, clock), placement.bare_node()
    server = claim(placement, node)
    known.note(server, TWO)
    assert known.by_provider(without="") == {}
    reachable = True
    assert known.by_provider(without="") == {node: {server: TWO}}


def test_a_server_on_its_way_counts_once_and_no_more_than_its_flavor_when_its_host_tells_of_it(cloud: Cloud) -> None:
    promises = Promises(lambda *_: {})
    told, coming = cloud.server({"hw:cache_ways": "2"}), str(uuid4())
    host = cloud.host(str(uuid4()), told)
    on_way = {host.uuid: {told.uuid: Taken(Amount(5, 1)), coming: Taken(Amount(3, 1))}}
    assert [promised.amount for promised in promises.on([host], "", on_way)] == [Amount(5, 2)]
    # The scheduler's own stub tells nothing.
    host.instances[coming] = objects.Instance(uuid=coming)
    assert [promised.amount for promised in promises.on([host], "", on_way)] == [Amount(5, 2)]
    assert [promised.amount for promised in promises.on([host], "")] == [Amount(2, 1)]


def test_the_sum_of_a_host_is_made_anew_when_a_server_comes_goes_or_is_told_anew(cloud: Cloud) -> None:
    promises = Promises(lambda *_: {})
    host = cloud.host(str(uuid4()), cloud.server({"hw:cache_ways": "2"}))

    def amount(without: str = "") -> Amount:
        (promised,) = promises.on([host], without)
        return promised.amount

    assert amount() == amount() == Amount(2, 1)
    other = cloud.server({"hw:cache_ways": "3"})
    host.instances[other.uuid] = other
    assert amount() == Amount(5, 2)
    assert amount(without=other.uuid) == Amount(2, 1)
    resized = cloud.server({"hw:cache_ways": "4"})
    host.instances[other.uuid] = resized
    assert amount() == Amount(6, 2)
    del host.instances[other.uuid]
    assert amount() == Amount(2, 1)
