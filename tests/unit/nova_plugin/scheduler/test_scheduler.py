# SPDX-License-Identifier: Apache-2.0
"""The filter and the weigher in Nova's own scheduler, which asks Placement and claims there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from nova import context as nova_context
from nova import exception, objects
from nova.scheduler.manager import SchedulerManager
from oslo_messaging import ExpectedException

from tests.unit.nova_plugin.clouds import Cloud, Placement, flavor
from vmqos.openstack.extra_specs import resources

TWO, THREE = {"hw:cache_ways": "2"}, {"hw:cache_ways": "3"}
Schedule = Callable[..., list[str]]


def asking(specs: dict[str, str]) -> dict[str, str]:
    ways = int(specs["hw:cache_ways"])
    return {**specs, **resources.as_extra_specs({resources.LLC_WAYS: ways, resources.LLC_CLASSES: 1})}


@pytest.fixture
def schedule(option: Any, placement: Placement) -> Schedule:
    """Has nova-scheduler find hosts for as many servers of a flavor; the names of the hosts."""
    ours = "nova_plugin.scheduler"
    option(
        "filter_scheduler",
        available_filters=["nova.scheduler.filters.all_filters", f"{ours}.filters.CacheWaysFilter"],
        enabled_filters=["ComputeFilter", "CacheWaysFilter"],
        weight_classes=[f"{ours}.weights.CacheWaysWeigher"],
        track_instance_changes=False,
    )
    option("vmqos", inventory_lifetime=0)

    def run(specs: dict[str, str], count: int = 1) -> list[str]:
        uuids = [str(uuid4()) for _ in range(count)]
        context = nova_context.RequestContext("u", "p", is_admin=True)
        spec = objects.RequestSpec.from_components(
            context,
            uuids[0],
            objects.ImageMeta(properties=objects.ImageMetaProps()),
            flavor(specs),
            None,
            objects.InstancePCIRequests(requests=[]),
            {},
            None,
            None,
            project_id="p",
            user_id="u",
        )
        try:
            chosen = SchedulerManager().select_destinations(
                context, spec_obj=spec, instance_uuids=uuids, return_objects=True, return_alternates=True
            )
        except ExpectedException as refused:
            # So Nova tells its RPC server that this is no fault of the scheduler's.
            assert refused.exc_info[1] is not None
            raise refused.exc_info[1] from None
        placement.claimed(uuids)
        return [selections[0].service_host for selections in chosen]

    return run


@pytest.mark.parametrize("specs", [THREE, asking(THREE)], ids=["counted by the filter", "counted by Placement"])
def test_a_server_lands_where_its_ways_are_left(
    cloud: Cloud, placement: Placement, schedule: Schedule, specs: dict[str, str]
) -> None:
    full, roomy, agentless = placement.compute_node(4), placement.compute_node(4), placement.bare_node()
    hosts = {node: cloud.compute(node) for node in (full, roomy, agentless)}
    cloud.server(TWO, host=hosts[full])
    placement.allocate(full, ways=2)
    assert schedule(specs) == [hosts[roomy]]


@pytest.mark.parametrize("specs", [TWO, asking(TWO)], ids=["counted by the filter", "counted by Placement"])
def test_the_servers_of_one_request_spread_until_no_host_has_room(
    cloud: Cloud, placement: Placement, schedule: Schedule, specs: dict[str, str]
) -> None:
    hosts = sorted(cloud.compute(placement.compute_node(4)) for _ in range(2))
    with pytest.raises(exception.NoValidHost):
        schedule(specs, 5)
    assert sorted(schedule(specs, 4)) == sorted(2 * hosts)


@pytest.mark.parametrize(
    "more", [{}, {"resources:CUSTOM_LLC_CLASSES": "1"}], ids=["counted by the filter", "by Placement"]
)
def test_a_server_with_a_limit_in_mbps_alone_lands_where_that_can_be_kept_and_a_group_is_left(
    cloud: Cloud, placement: Placement, schedule: Schedule, more: dict[str, str]
) -> None:
    limit = {"hw:mem_bandwidth_mbps": "4000"}
    able = (resources.L3_CAT, resources.MBA_MBPS)
    percent = placement.compute_node(traits=(resources.L3_CAT, resources.MBA_PERCENT))
    full, roomy = placement.compute_node(classes=1, traits=able), placement.compute_node(classes=1, traits=able)
    hosts = {node: cloud.compute(node) for node in (percent, full, roomy)}
    cloud.server(limit, host=hosts[full])
    placement.allocate(full, ways=1)
    assert schedule({**limit, **more}) == [hosts[roomy]]


def test_with_a_negative_multiplier_they_are_packed(
    cloud: Cloud, placement: Placement, schedule: Schedule, option: Any
) -> None:
    option("filter_scheduler", cache_ways_weight_multiplier=-1.0)
    for _ in range(2):
        cloud.compute(placement.compute_node(8))
    assert len(set(schedule(TWO, 3))) == 1


def test_servers_that_nova_compute_did_not_describe_are_counted(
    cloud: Cloud, placement: Placement, schedule: Schedule
) -> None:
    host = cloud.compute(placement.compute_node(6))
    cloud.server(THREE, host=host)
    assert schedule(TWO) == [host]
    cloud.server(TWO, host=host)
    with pytest.raises(exception.NoValidHost):
        schedule(TWO)
