# SPDX-License-Identifier: Apache-2.0
"""What becomes of a cloud in which vmqos is not yet everywhere: what the guide's page about upgrading says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from nova import context as nova_context
from nova import exception, objects

from nova_plugin.scheduler import options
from tests.unit.nova_plugin.clouds import Cloud, Placement, flavor
from tests.unit.nova_plugin.nova_api import PREFIX, NovaApi, without_plugin
from tests.unit.nova_plugin.scheduler.test_scheduler import TWO, Schedule, asking, schedule
from tests.unit.nova_plugin.served import served
from vmqos.extra_specs import resources

__all__ = ["schedule"]

CHECKING, OLDER = "2.86", "2.85"
NO_PLUGIN = {"enabled_filters": ["ComputeFilter"], "weight_classes": ["nova.scheduler.weights.all_weighers"]}
NOT_ONE = "does not appear to be a valid extra spec"


@pytest.fixture(scope="module", autouse=True)
def registered(nova_conf: Any) -> None:
    options.register(nova_conf)


@pytest.fixture(scope="module")
def apis(nova_conf: Any) -> Iterator[dict[str, str]]:
    """The URLs of two nova-api of one cloud, one with the plugin and one without."""
    with served(NovaApi()) as url, without_plugin(nova_conf.config_file[0]) as other:
        yield {"with": f"{url}{PREFIX}", "without": other}


@pytest.fixture
def flavor_id() -> Iterator[str]:
    """A flavor that promises nothing yet."""
    made = flavor({})
    made._context, made.flavorid, made.name = nova_context.get_admin_context(), str(uuid4()), f"c2.{uuid4()}"
    made.create()
    yield made.flavorid
    objects.Flavor(nova_context.get_admin_context(), flavorid=made.flavorid).destroy()


def put(api: str, flavor_id: str, value: str, microversion: str) -> tuple[int, str]:
    """Set ``hw:cache_ways``; the status, and what the API says."""
    answer = httpx.post(
        f"{api}/flavors/{flavor_id}/os-extra_specs",
        json={"extra_specs": {"hw:cache_ways": value}},
        headers={"OpenStack-API-Version": f"compute {microversion}"},
        trust_env=False,
        timeout=60,
    )
    return answer.status_code, answer.text


@pytest.mark.parametrize(
    ("api", "value", "microversion", "status", "said"),
    [
        ("with", "2", CHECKING, 200, "hw:cache_ways"),
        ("with", "two", CHECKING, 400, "an integer from 1 up is allowed"),
        ("with", "two", OLDER, 200, "hw:cache_ways"),
        ("without", "2", CHECKING, 400, NOT_ONE),
        ("without", "two", CHECKING, 400, NOT_ONE),
        ("without", "2", OLDER, 200, "hw:cache_ways"),
        ("without", "two", OLDER, 200, "hw:cache_ways"),
    ],
)
def test_the_nova_api_that_is_asked_decides_what_a_flavor_may_say(
    apis: dict[str, str], flavor_id: str, api: str, value: str, microversion: str, status: int, said: str
) -> None:
    code, text = put(apis[api], flavor_id, value, microversion)
    assert (code, said in text) == (status, True), text


def test_what_the_one_nova_api_took_the_other_one_shows(apis: dict[str, str], flavor_id: str) -> None:
    assert put(apis["with"], flavor_id, "2", CHECKING)[0] == 200
    for api in apis.values():
        shown = httpx.get(f"{api}/flavors/{flavor_id}/os-extra_specs", trust_env=False, timeout=60).json()
        assert shown == {"extra_specs": {"hw:cache_ways": "2"}}


def test_a_scheduler_without_the_plugin_gives_no_way_twice_where_the_flavor_asks_placement(
    cloud: Cloud, placement: Placement, schedule: Schedule, option: Any
) -> None:
    option(
        "filter_scheduler", enabled_filters=["ComputeFilter"], weight_classes=["nova.scheduler.weights.all_weighers"]
    )
    cloud.compute(placement.bare_node())
    able = cloud.compute(placement.compute_node(2))
    assert schedule(asking(TWO)) == [able]
    with pytest.raises(exception.NoValidHost):
        schedule(asking(TWO))


def test_a_scheduler_without_the_plugin_places_a_flavor_that_does_not_ask_placement_anywhere(
    cloud: Cloud, placement: Placement, schedule: Schedule, option: Any
) -> None:
    option(
        "filter_scheduler", enabled_filters=["ComputeFilter"], weight_classes=["nova.scheduler.weights.all_weighers"]
    )
    bare = cloud.compute(placement.bare_node())
    assert schedule(TWO) == [bare]


def test_a_host_whose_agent_does_not_tell_a_trait_yet_gets_only_what_needs_none(
    cloud: Cloud, placement: Placement, schedule: Schedule
) -> None:
    older = cloud.compute(placement.compute_node(8, traits=(resources.L3_CAT,)))
    half = {"hw:mem_bandwidth_percent": "50"}
    assert schedule(asking(TWO)) == [older]
    with pytest.raises(exception.NoValidHost):
        schedule(half)
    newer = cloud.compute(placement.compute_node(8, traits=(resources.L3_CAT, resources.MBA_PERCENT)))
    assert schedule(half) == [newer]


def test_what_an_agent_tells_that_the_scheduler_does_not_know_harms_nothing(
    cloud: Cloud, placement: Placement, schedule: Schedule
) -> None:
    newer = cloud.compute(placement.compute_node(8, traits=(resources.L3_CAT, "CUSTOM_VMQOS_OF_TOMORROW")))
    assert schedule(asking(TWO)) == [newer]
    assert schedule(TWO) == [newer]
