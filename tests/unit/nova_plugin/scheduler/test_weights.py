# SPDX-License-Identifier: Apache-2.0
"""The weigher, in Nova's own weight handler."""

from __future__ import annotations

from typing import Any

import pytest
from keystoneauth1.exceptions import ConnectFailure
from nova import objects
from nova.scheduler.weights import HostWeightHandler

from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.recent import Recent
from nova_plugin.scheduler.rooms import Rooms
from nova_plugin.scheduler.weights import CacheWaysWeigher
from tests.unit.nova_plugin.clouds import Cloud, Placement, request
from tests.unit.nova_plugin.scheduler.conftest import Asked

ONE, TWO, FOUR = ({"hw:cache_ways": str(ways)} for ways in (1, 2, 4))
ASKING = {**TWO, "resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}


@pytest.fixture
def weigher(rooms: Rooms) -> CacheWaysWeigher:
    return CacheWaysWeigher(rooms)


@pytest.fixture
def hosts(cloud: Cloud, placement: Placement) -> list[Any]:
    """Hosts with 8, 4, 2 and no ways left."""
    return [
        cloud.host(placement.compute_node(8)),
        cloud.host(placement.compute_node(8), cloud.server(FOUR)),
        cloud.host(placement.compute_node(8), cloud.server(FOUR), cloud.server(TWO, stub=True)),
        cloud.host(placement.bare_node()),
    ]


def weights(weigher: CacheWaysWeigher, hosts: list[Any], specs: dict[str, str]) -> list[float]:
    found = HostWeightHandler().get_weighed_objects([weigher], hosts, request(specs))
    by_host = {weighed.obj.host: weighed.weight for weighed in found}
    return [by_host[host.host] for host in hosts]


def test_nova_loads_the_weigher_by_its_path() -> None:
    classes = HostWeightHandler().get_matching_classes(["nova_plugin.scheduler.weights.CacheWaysWeigher"])
    assert classes == [CacheWaysWeigher]
    assert isinstance(CacheWaysWeigher(), CacheWaysWeigher)


def test_hosts_weigh_what_they_have_free_and_placement_is_asked_once(
    weigher: CacheWaysWeigher, hosts: list[Any], asked: Asked
) -> None:
    assert weights(weigher, hosts, TWO) == [1.0, 0.5, 0.25, 0.0]
    assert asked.paths == ["/allocation_candidates"]


def test_a_negative_multiplier_packs(weigher: CacheWaysWeigher, hosts: list[Any], option: Any) -> None:
    option("filter_scheduler", cache_ways_weight_multiplier=-2.0)
    assert weights(weigher, hosts, TWO) == [-2.0, -1.0, -0.5, 0.0]


def test_an_aggregates_metadata_overrides_the_multiplier(weigher: CacheWaysWeigher, hosts: list[Any]) -> None:
    hosts[1].aggregates = [objects.Aggregate(id=1, name="a", metadata={"cache_ways_weight_multiplier": "10"})]
    hosts[2].aggregates = [
        objects.Aggregate(id=number, name="b", metadata={"cache_ways_weight_multiplier": value})
        for number, value in enumerate(["8", "4"])
    ]
    assert weights(weigher, hosts, TWO) == [1.0, 5.0, 1.0, 0.0]


def test_for_a_flavor_that_asks_placement_its_allocations_weigh(
    weigher: CacheWaysWeigher, cloud: Cloud, placement: Placement
) -> None:
    nodes = [placement.compute_node(8) for _ in range(2)]
    placement.allocate(nodes[0], ways=4)
    assert weights(weigher, [cloud.host(node) for node in nodes], ASKING) == [0.5, 1.0]


@pytest.mark.parametrize(
    "specs", [{}, {**TWO, "hw:cache_policy": "shared"}, {"hw:cache_policy": "shared"}, {"hw:l2_cache_ways": "1"}]
)
def test_other_flavors_weigh_all_hosts_the_same_and_ask_nothing(
    weigher: CacheWaysWeigher, hosts: list[Any], asked: Asked, specs: dict[str, str]
) -> None:
    assert weights(weigher, hosts, specs) == [0.0] * 4
    assert asked.paths == []


def test_without_placement_all_hosts_weigh_the_same(hosts: list[Any]) -> None:
    def unreachable() -> Any:
        raise ConnectFailure("nobody listens")

    weigher = CacheWaysWeigher(Rooms(Inventory(unreachable), Promises(lambda *_: {}), Recent(unreachable)))
    assert weights(weigher, hosts, TWO) == [0.0] * 4


def test_a_host_that_was_chosen_weighs_less_for_the_next_server_of_the_request(
    weigher: CacheWaysWeigher, cloud: Cloud, placement: Placement
) -> None:
    hosts = [cloud.host(placement.compute_node(8)) for _ in range(2)]
    assert weights(weigher, hosts, FOUR) == [1.0, 1.0]
    hosts[0].consume_from_request(request(FOUR))
    assert weights(weigher, hosts, FOUR) == [0.5, 1.0]
