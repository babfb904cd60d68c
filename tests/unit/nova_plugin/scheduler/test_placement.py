# SPDX-License-Identifier: Apache-2.0
"""What Placement itself answers about the hosts' ways, over Nova's own client."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlencode

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova.scheduler.client import report

from nova_plugin.scheduler import placement as asked
from nova_plugin.scheduler.demand import Amount
from nova_plugin.scheduler.placement import PlacementFailed, Provider
from tests.unit.nova_plugin.clouds import Placement
from tests.unit.nova_plugin.served import served
from vmqos.extra_specs.resources import L3_CAT, LLC_SHARED, SHARED_ROOM


def client_of(url: str) -> report.SchedulerReportClient:
    """Nova's client, of something else than Placement."""
    return report.SchedulerReportClient(Adapter(Session(Token(url, "admin")), "placement", raise_exc=False))


class Counting:
    """A client that counts its requests."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.urls: list[str] = []

    def get(self, url: str, version: str | None = None) -> Any:
        self.urls.append(url)
        return self._client.get(url, version=version)


def query(**amounts: int) -> str:
    return urlencode({"resources": ",".join(f"{name}:{amount}" for name, amount in {"VCPU": 1, **amounts}.items())})


def test_one_request_tells_what_the_hosts_have_and_what_is_allocated(client: Any, placement: Placement) -> None:
    first, second = placement.compute_node(8, 15), placement.compute_node(16, 3, (L3_CAT, SHARED_ROOM))
    placement.bare_node()
    placement.allocate(second, ways=5)
    counting = Counting(client)
    assert asked.providers(counting, query()) == {
        first: Provider(frozenset({L3_CAT}), Amount(8, 15), Amount(0, 0)),
        second: Provider(frozenset({L3_CAT, SHARED_ROOM}), Amount(16, 3), Amount(5, 1)),
    }
    assert len(counting.urls) == 1


def test_the_shared_classes_of_a_host_are_those_that_it_offers(client: Any, placement: Placement) -> None:
    four, half = f"{LLC_SHARED}WAYS4", f"{LLC_SHARED}MB50"
    node = placement.compute_node(shared={four: True, half: False})
    assert asked.providers(client, query())[node].classes == {four}


def test_only_hosts_that_would_be_allocated_what_is_asked_for_are_told(client: Any, placement: Placement) -> None:
    full, groupless = placement.compute_node(4, 15), placement.compute_node(8, 1)
    placement.compute_node(0, 15)
    placement.compute_node(4, 0)
    left = placement.compute_node(1, 1)
    placement.allocate(full, ways=4)
    placement.allocate(groupless, ways=1)
    assert set(asked.providers(client, query(CUSTOM_LLC_WAYS=1, CUSTOM_LLC_CLASSES=1))) == {left}
    node = placement.compute_node(8, units=(2, 4))
    told = [ways for ways in range(1, 9) if node in asked.providers(client, query(CUSTOM_LLC_WAYS=ways))]
    assert told == [2, 3, 4]


def test_inventories_of_a_compute_nodes_own_provider_count_too(client: Any, placement: Placement) -> None:
    node = placement.node_with_a_file(8, 15)
    told = asked.providers(client, urlencode({"resources": "CUSTOM_LLC_WAYS:2"}))
    assert told == {node: Provider(frozenset({L3_CAT}), Amount(8, 15), Amount(0, 0))}


@pytest.mark.parametrize(
    "never_made", [{"resources": "CUSTOM_NEVER_MADE:1"}, {"resources": "VCPU:1", "required": "CUSTOM_NEVER_MADE"}]
)
def test_no_host_has_what_no_agent_has_made_yet(client: Any, never_made: dict[str, str]) -> None:
    assert asked.providers(client, urlencode(never_made)) == {}


def test_an_http_error_names_the_request_and_what_placement_says(client: Any) -> None:
    with pytest.raises(PlacementFailed, match=r"GET /allocation_candidates\?resources=.*: HTTP 400: .*amount >= 1"):
        asked.providers(client, query(CUSTOM_LLC_WAYS=-1))


def test_an_unreachable_placement_is_a_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = client_of(f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(PlacementFailed, match=r"GET /allocation_candidates.*127\.0\.0\.1"):
            asked.providers(client, query())


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b"{}"])
def test_an_answer_of_something_else_is_a_failure(body: bytes) -> None:
    def proxy(_: Any, start: Any) -> list[bytes]:
        start("200 OK", [("Content-Type", "application/json")])
        return [body]

    with served(proxy) as url, pytest.raises(PlacementFailed, match="the answer has no 'provider_summaries'"):
        asked.providers(client_of(url), query())
