# SPDX-License-Identifier: Apache-2.0
"""The filter and the weigher in Nova's own scheduler, which asks Placement and claims there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from nova import context as nova_context
from nova import exception, objects
from nova.scheduler.manager import SchedulerManager
from oslo_messaging import ExpectedException

from nova_plugin.scheduler import placement as scheduler_placement
from nova_plugin.scheduler import promises, rooms
from tests.unit.nova_plugin.clouds import Cloud, Placement, flavor
from vmqos import extra_specs, group_names
from vmqos.agent.serve import capacity
from vmqos.allocation import Group, Layout, Policy, PromiseState, Request, plan
from vmqos.cli.flavor import flavor_specs
from vmqos.extra_specs import CachePolicy, CacheRequest, resources
from vmqos.group_names import Owner
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import CacheResource, Capabilities

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


def test_what_nova_gives_back_of_a_request_that_fails_is_free_at_once_however_long_the_request_takes(
    cloud: Cloud, placement: Placement, schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "ANEW_AFTER", -1.0)
    host = cloud.compute(placement.compute_node(4))
    with pytest.raises(exception.NoValidHost):
        schedule(TWO, 3)
    assert schedule(TWO, 2) == [host, host]


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


CAP, HALF = {**TWO, "hw:cache_policy": "shared"}, {"hw:mem_bandwidth_percent": "50"}
SPLIT = {"hw:cache_code_ways": "1", "hw:cache_data_ways": "1"}
LIMIT = {"hw:mem_bandwidth_mbps": "4000"}


def set_by_command(promise: dict[str, str]) -> dict[str, str]:
    """The flavor as ``vmqos flavor set`` leaves it."""
    change = flavor_specs.change({}, promise, placement=True, vcpus=1)
    assert not change.drop
    return dict(change.put)


def test_of_sixty_hosts_the_one_that_can_keep_the_promise_is_found_though_placement_answers_with_one(
    cloud: Cloud, placement: Placement, schedule: Schedule, option: Any
) -> None:
    option("scheduler", max_placement_results=1)
    cap, half = "CUSTOM_LLC_SHARED_WAYS2", "CUSTOM_LLC_SHARED_MB50"
    able: dict[int, tuple[dict[str, str], tuple[str, ...], dict[str, bool]]] = {
        7: (CAP, (resources.L3_CAT,), {cap: True}),
        21: (HALF, (resources.L3_CAT, resources.MBA_PERCENT), {half: True, cap: False}),
        34: (SPLIT, (resources.L3_CAT, resources.L3_CDP), {}),
        52: (LIMIT, (resources.L3_CAT, resources.MBA_MBPS), {}),
    }
    hosts = []
    for number in range(60):
        if number in able:
            node = placement.compute_node(traits=able[number][1], shared=able[number][2])
        else:
            node = placement.bare_node() if number % 3 else placement.compute_node(shared={cap: False, half: False})
        hosts.append(cloud.compute(node))
    for number, (promise, _, _) in able.items():
        for _ in range(3):
            assert schedule(set_by_command(promise)) == [hosts[number]], promise
    # Many can keep this one.
    for _ in range(3):
        assert schedule(set_by_command(TWO))[0] in hosts


def test_a_trait_that_is_required_beside_the_class_finds_the_host(
    cloud: Cloud, placement: Placement, schedule: Schedule
) -> None:
    cloud.compute(placement.compute_node(traits=(), shared={"CUSTOM_LLC_SHARED_WAYS2": True}))
    able = cloud.compute(placement.compute_node(shared={"CUSTOM_LLC_SHARED_WAYS2": True}))
    trait = resources.as_required({resources.L3_CAT})
    assert schedule({**CAP, **resources.as_extra_specs({"CUSTOM_LLC_SHARED_WAYS2": 1}), **trait}) == [able]
    # Without a resource Placement finds no host at all: 'vmqos flavor check' tells.
    with pytest.raises(exception.NoValidHost):
        schedule({**CAP, **trait})
    assert "no host passes" in flavor_specs.problems({**CAP, **trait}, placement=True, vcpus=1)[0]


def test_no_control_group_is_promised_twice_whatever_servers_come_together(
    cloud: Cloud, placement: Placement, schedule: Schedule
) -> None:
    l3 = CacheResource("L3", 5, CapacityBitmask(0x7FF), 1, CapacityBitmask(), False, (0,))
    found, empty = Capabilities({"L3": l3}), Layout((Group("", Owner.DEFAULT, {0: CapacityBitmask(0x7FF)}),))
    cap, four = (CacheRequest(ways, CachePolicy.SHARED) for ways in (2, 4))
    policy = Policy(shared_classes=(cap, four), other_classes=1)
    room = capacity.of(ResctrlState((1, 1), found, empty, {}, {}), policy)
    host = cloud.compute(
        placement.compute_node(
            room["ways"], room["classes"], tuple(room["traits"]), shared=dict.fromkeys(room["offered"], True)
        )
    )
    # All are placed before the agent has seen one of them.
    wanted = [TWO, CAP, {**CAP, "hw:cache_ways": "4"}, TWO, CAP, {**CAP, "hw:cache_ways": "3"}]
    placed = []
    for promise in wanted:
        try:
            assert schedule(set_by_command(promise)) == [host]
            placed.append(promise)
        except exception.NoValidHost:
            continue
    assert placed == [TWO, CAP, {**CAP, "hw:cache_ways": "4"}, CAP]
    # One of a flavor that asks for nothing comes, too, and takes what is left for such classes.
    other = {**CAP, "hw:cache_ways": "5"}
    assert schedule(other) == [host]
    for order in itertools.permutations([*placed, other]):
        requests = [
            Request(str(UUID(int=number)), extra_specs.parse_strict(specs) or CacheRequest(), frozenset({0}), number)
            for number, specs in enumerate(order, 1)
        ]
        verdicts = plan(found, empty, requests, policy).allocations.values()
        assert {verdict.state for verdict in verdicts} == {PromiseState.KEPT}


FULL_BUT_ONE = {
    "the CLOSID is kept for a class": (("vm", "vm"), 2, [2], False),
    "the CLOSID is kept for an exclusive server": (("class", "vm"), 1, [], True),
    "two CLOSIDs are left, one of each kind": (("vm",), 1, [2], True),
}
"""The groups on a host with 4 CLOSIDs; how many servers Placement has allocated a group of their own to; which of the
classes with 2, 3 and 4 ways must find the host, and whether an exclusive server must."""


@pytest.mark.parametrize(("there", "allocated", "classes", "exclusive"), FULL_BUT_ONE.values(), ids=FULL_BUT_ONE)
def test_of_servers_that_come_within_seconds_no_more_are_placed_than_there_are_closids_whatever_they_ask(
    cloud: Cloud,
    placement: Placement,
    schedule: Schedule,
    option: Any,
    there: tuple[str, ...],
    allocated: int,
    classes: list[int],
    exclusive: bool,
) -> None:
    option("vmqos", inventory_lifetime=10)
    rooms.of_scheduler.cache_clear()
    every, running, groups, free = frozenset({0}), [], [], 0x7FF
    for number, kind in enumerate(there, 1):
        wants = CacheRequest(1) if kind == "vm" else CacheRequest(1, CachePolicy.SHARED)
        running.append(Request(str(UUID(int=number)), wants, every, number))
        if kind == "vm":
            free &= ~(1 << number)
            name = group_names.vm_group(running[-1].uuid)
            groups.append(Group(name, Owner.VM, {0: CapacityBitmask(1 << number)}))
        else:
            name = group_names.class_group(wants)
            groups.append(Group(name, Owner.CLASS, {0: CapacityBitmask(0x400)}))
    l3 = CacheResource("L3", 4, CapacityBitmask(0x7FF), 1, CapacityBitmask(), False, (0,))
    layout = Layout((Group("", Owner.DEFAULT, {0: CapacityBitmask(free)}), *groups))
    found, policy = Capabilities({"L3": l3}), Policy(placement_counts=True)
    room = capacity.of(ResctrlState((1, 1), found, layout, {}, {}), policy, running)
    node = placement.compute_node(room["ways"], room["classes"], tuple(room["traits"]), others=room["others"])
    host = cloud.compute(node)
    for _ in range(allocated):
        placement.allocate(node, ways=1)
    placed = []
    for promise in (*({**CAP, "hw:cache_ways": str(ways)} for ways in (2, 3, 4)), asking(TWO), CAP):
        try:
            assert schedule(promise) == [host]
            placed.append(promise)
        except exception.NoValidHost:
            continue
    # A class that was let in takes any number of servers.
    expected = [{**CAP, "hw:cache_ways": str(ways)} for ways in classes] + [asking(TWO)] * exclusive
    assert placed == expected + [CAP] * (2 in classes)
    newcomers = [
        Request(str(UUID(int=number)), extra_specs.parse_strict(specs) or CacheRequest(), every, number)
        for number, specs in enumerate(placed, 10)
    ]
    for order in itertools.permutations(newcomers):
        arrived = [replace(request, arrival=number) for number, request in enumerate(order, 10)]
        allocations = plan(found, layout, [*running, *arrived], policy).allocations.values()
        assert {given.state for given in allocations} == {PromiseState.KEPT}
    rooms.of_scheduler.cache_clear()


def test_a_flavor_that_asks_for_all_costs_no_question_but_the_weighers_and_reads_no_server(
    cloud: Cloud, placement: Placement, schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = cloud.compute(placement.compute_node(shared={"CUSTOM_LLC_SHARED_WAYS2": True}))
    cloud.compute(placement.compute_node(shared={"CUSTOM_LLC_SHARED_WAYS2": False}))
    cloud.server(TWO, host=host)
    queries: list[str] = []
    ask = scheduler_placement.providers

    def asked(client: Any, query: str) -> Any:
        queries.append(query)
        return ask(client, query)

    def read(cell: str, uuids: list[str]) -> Any:
        raise AssertionError(f"{uuids} are read from the database")

    monkeypatch.setattr(scheduler_placement, "providers", asked)
    monkeypatch.setattr(promises, "read_from_cell", read)
    rooms.of_scheduler.cache_clear()
    assert schedule(set_by_command(CAP)) == [host]
    assert queries == []
    assert len(schedule(set_by_command(TWO))) == 1
    assert len(queries) == 1 and "limit=1000" in queries[0]
    rooms.of_scheduler.cache_clear()
