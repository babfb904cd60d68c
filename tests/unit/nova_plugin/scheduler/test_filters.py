# SPDX-License-Identifier: Apache-2.0
"""The filter, on HostStates and RequestSpecs of Nova and on Placement's inventories."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from keystoneauth1.exceptions import ConnectFailure
from nova import objects
from nova.scheduler.filters import HostFilterHandler
from nova.scheduler.host_manager import HostManager

from nova_plugin.scheduler import moves, promises
from nova_plugin.scheduler.filters import CacheWaysFilter
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.promises import Promises
from nova_plugin.scheduler.recent import Recent
from nova_plugin.scheduler.rooms import Rooms
from tests.unit.clock import Clock
from tests.unit.nova_plugin.clouds import Cloud, Placement, request
from tests.unit.nova_plugin.scheduler.conftest import Asked
from vmqos import extra_specs
from vmqos.extra_specs import CacheRequest, resources
from vmqos.extra_specs.resources import (
    L2_CAT,
    L3_CAT,
    L3_CDP,
    MBA,
    MBA_MBPS,
    MBA_PERCENT,
    SHARED_FULL,
    SHARED_ROOM,
)

ONE, TWO, FOUR = ({"hw:cache_ways": str(ways)} for ways in (1, 2, 4))
SHARED = {**TWO, "hw:cache_policy": "shared"}
ASKING = {**TWO, "resources:CUSTOM_LLC_WAYS": "2", "resources:CUSTOM_LLC_CLASSES": "1"}


@pytest.fixture
def passes(rooms: Rooms) -> Any:
    """The hosts that pass, of several, as Nova's filter handler finds them."""
    ours = CacheWaysFilter(rooms)

    def run(hosts: list[Any], spec: Any, index: int = 0) -> list[Any]:
        return list(HostFilterHandler().get_filtered_objects([ours], hosts, spec, index))

    return run


def test_nova_loads_the_filter_by_its_path() -> None:
    classes = HostFilterHandler().get_matching_classes(["nova_plugin.scheduler.filters.CacheWaysFilter"])
    assert classes == [CacheWaysFilter]
    assert isinstance(CacheWaysFilter(), CacheWaysFilter)


def test_only_hosts_with_the_ways_left_pass(cloud: Cloud, placement: Placement, passes: Any) -> None:
    full = cloud.host(placement.compute_node(4), cloud.server(TWO), cloud.server(ONE))
    exact = cloud.host(placement.compute_node(4), cloud.server(TWO, stub=True), cloud.server(SHARED))
    empty = cloud.host(placement.compute_node(4))
    agentless = cloud.host(placement.bare_node())
    hosts = [full, exact, empty, agentless]
    assert passes(hosts, request(TWO)) == [exact, empty]
    assert passes(hosts, request(ONE)) == [full, exact, empty]
    assert passes(hosts, request(FOUR)) == [empty]


def test_a_host_without_a_group_left_is_refused(cloud: Cloud, placement: Placement, passes: Any) -> None:
    few = cloud.host(placement.compute_node(16, classes=2), cloud.server(ONE), cloud.server(ONE))
    some = cloud.host(placement.compute_node(16, classes=3), cloud.server(ONE), cloud.server(ONE))
    assert passes([few, some], request(ONE)) == [some]


def test_placement_is_asked_once_for_all_hosts_and_requests(
    cloud: Cloud, placement: Placement, passes: Any, asked: Asked
) -> None:
    nodes = [placement.compute_node() for _ in range(5)]
    for _ in range(3):
        assert len(passes([cloud.host(node, cloud.server(TWO)) for node in nodes], request(TWO))) == 5
    assert asked.about_hosts == 1


def test_each_number_of_ways_is_a_question_of_its_own(
    cloud: Cloud, placement: Placement, passes: Any, asked: Asked
) -> None:
    node = placement.compute_node(8, units=(2, 2))
    found = [bool(passes([cloud.host(node)], request(specs))) for specs in (ONE, TWO, FOUR, TWO)]
    assert found == [False, True, False, True]
    assert asked.about_hosts == 3


@pytest.mark.parametrize("moment", [1.0, 2.0], ids=["of this moment", "older"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_room_that_became_free_is_found_though_the_answer_is_used_again_for_a_while(
    cloud: Cloud, placement: Placement, asked: Asked, clock: Clock, moment: float, hosts: int
) -> None:
    """What none of the hosts passes by is read anew, unless it was read this moment."""
    known = Promises(promises.read_from_cell, clock, moves.read_from_cell)
    ours = CacheWaysFilter(Rooms(Inventory(lambda: asked, clock), known, Recent(lambda: asked, clock)))
    nodes = [placement.compute_node(4) for _ in range(hosts)]
    for node in nodes:
        placement.allocate(node, ways=4)

    def passing() -> int:
        return len(ours.filter_all([cloud.host(node) for node in nodes], request(TWO)))

    assert passing() == 0
    gone = placement._consumers.pop()
    placement.http.delete(f"/allocations/{gone}").raise_for_status()
    clock.now += moment
    assert passing() == (moment > 1)
    assert asked.about_hosts == 1 + (moment > 1)


def test_flavors_without_a_promise_pass_everywhere_and_ask_nothing(
    cloud: Cloud, placement: Placement, passes: Any, asked: Asked
) -> None:
    hosts = [cloud.host(placement.bare_node()), cloud.host(placement.compute_node(1), cloud.server(ONE))]
    assert passes(hosts, request({"hw:cpu_policy": "shared"})) == hosts
    assert asked.paths == []


def test_what_placement_allocated_is_taken_even_where_the_server_has_not_come_yet(
    cloud: Cloud, placement: Placement, passes: Any
) -> None:
    node = placement.compute_node(4)
    placement.allocate(node, ways=3)
    assert passes([cloud.host(node)], request(TWO)) == []
    assert len(passes([cloud.host(node)], request(ONE))) == 1


def test_a_flavor_that_asks_placement_passes_where_a_candidate_has_its_ways(
    cloud: Cloud, placement: Placement, passes: Any, asked: Asked
) -> None:
    roomy, full = placement.compute_node(4), placement.compute_node(4)
    placement.allocate(full, ways=3)
    candidates = placement.candidates({"CUSTOM_LLC_WAYS": 2, "CUSTOM_LLC_CLASSES": 1})
    hosts = [cloud.host(node, cloud.server(FOUR)) for node in (roomy, full)]
    for host in hosts:
        host.allocation_candidates = candidates.get(host.uuid, [])
    assert passes(hosts, request(ASKING)) == [hosts[0]]
    assert asked.paths == []


def test_candidates_without_the_ways_are_dropped(cloud: Cloud, placement: Placement, passes: Any) -> None:
    host = cloud.host(placement.compute_node(4))
    too_little: tuple[dict[str, int], ...] = ({}, {"CUSTOM_LLC_WAYS": 2}, {"CUSTOM_LLC_CLASSES": 1})
    without = [placement.candidates(asked)[host.uuid][0] for asked in too_little]
    (with_ways,) = placement.candidates({"CUSTOM_LLC_WAYS": 2, "CUSTOM_LLC_CLASSES": 1})[host.uuid]
    host.allocation_candidates = [*without, with_ways]
    assert passes([host], request(ASKING)) == [host]
    assert host.allocation_candidates == [with_ways]


def test_a_flavor_that_asks_placement_for_less_than_it_promises_is_counted(
    cloud: Cloud, placement: Placement, passes: Any
) -> None:
    less = {**FOUR, "resources:CUSTOM_LLC_WAYS": "1", "resources:CUSTOM_LLC_CLASSES": "1"}
    host = cloud.host(placement.compute_node(4), cloud.server(ONE))
    host.allocation_candidates = placement.candidates({"CUSTOM_LLC_WAYS": 1, "CUSTOM_LLC_CLASSES": 1})[host.uuid]
    assert passes([host], request(less)) == []


def test_a_shared_promise_needs_a_host_that_can_cap_and_no_ways(
    cloud: Cloud, placement: Placement, passes: Any, asked: Asked
) -> None:
    full = cloud.host(placement.compute_node(2), cloud.server(TWO))
    incapable = cloud.host(placement.compute_node(traits=()))
    agentless = cloud.host(placement.bare_node())
    for _ in range(2):
        assert passes([full, incapable, agentless], request(SHARED)) == [full]
    assert asked.about_hosts == 1


@pytest.mark.parametrize("specs", [SHARED, {"hw:mem_bandwidth_percent": "20"}])
def test_a_shared_promise_needs_its_class_on_the_host_or_a_control_group_for_it(
    cloud: Cloud, placement: Placement, passes: Any, specs: dict[str, str]
) -> None:
    able = (L3_CAT, MBA_PERCENT)
    other = {**FOUR, "hw:cache_policy": "shared"}
    taken = placement.compute_node(8, 1, able)
    placement.allocate(taken, ways=1)
    full = cloud.host(taken, cloud.server(other))
    counted = cloud.host(placement.compute_node(8, 1, able), cloud.server(ONE))
    there = cloud.host(taken, cloud.server(specs, stub=True))
    roomy = cloud.host(placement.compute_node(8, 1, able), cloud.server(other))
    assert passes([full, counted, there, roomy], request(specs)) == [there, roomy]


def test_a_shared_promise_passes_where_the_agent_keeps_its_class_or_can_make_it_and_no_database_is_read(
    cloud: Cloud, placement: Placement, rooms: Rooms
) -> None:
    def read(cell: str, uuids: list[str]) -> Any:
        raise AssertionError(f"{uuids} are read from the database")

    ours = CacheWaysFilter(replace(rooms, promises=Promises(read)))
    stub = cloud.server({}, stub=True)
    mine, other = "CUSTOM_LLC_SHARED_WAYS2", "CUSTOM_LLC_SHARED_WAYS4"
    room = cloud.host(placement.compute_node(8, 1, (L3_CAT, SHARED_ROOM), shared={other: True}), stub)
    kept = cloud.host(placement.compute_node(8, 1, (L3_CAT, SHARED_FULL), shared={mine: True}), stub)
    full = cloud.host(placement.compute_node(8, 1, (L3_CAT, SHARED_FULL), shared={mine: False, other: True}))
    assert ours.filter_all([room, kept, full], request(SHARED)) == [room, kept]


def test_where_no_further_class_can_be_made_those_of_the_servers_count(
    cloud: Cloud, placement: Placement, passes: Any
) -> None:
    there = cloud.host(placement.compute_node(8, 15, (L3_CAT, SHARED_FULL)), cloud.server(SHARED, stub=True))
    other = cloud.host(placement.compute_node(8, 15, (L3_CAT, SHARED_FULL)), cloud.server(TWO))
    assert passes([there, other], request(SHARED)) == [there]


def test_a_shared_flavor_that_asks_placement_passes_where_a_candidate_has_its_class_and_nothing_else_is_asked(
    cloud: Cloud, placement: Placement, passes: Any, asked: Asked
) -> None:
    taken = {"CUSTOM_LLC_SHARED_WAYS2": 1}
    asking = {**SHARED, **resources.as_extra_specs(taken), **resources.as_required({L3_CAT})}
    nodes = [placement.compute_node(8, 0, shared={name: offered for name in taken}) for offered in (True, False)]
    candidates = placement.candidates(taken, {L3_CAT})
    hosts = [cloud.host(node, cloud.server(FOUR, stub=True)) for node in nodes]
    for host in hosts:
        host.allocation_candidates = candidates.get(host.uuid, [])
    assert passes(hosts, request(asking)) == [hosts[0]]
    assert asked.paths == []


def test_a_server_s_own_class_is_there_when_it_is_resized(cloud: Cloud, placement: Placement, passes: Any) -> None:
    mine = cloud.server(SHARED)
    full = placement.compute_node(8, 1)
    placement.allocate(full, ways=1)
    host = cloud.host(full, mine)
    assert passes([host], request(SHARED, mine.uuid, vcpus=2)) == [host]
    assert passes([host], request({**FOUR, "hw:cache_policy": "shared"}, mine.uuid)) == []


def test_the_servers_of_one_request_share_the_class_that_the_first_one_makes(
    cloud: Cloud, placement: Placement, passes: Any
) -> None:
    host = cloud.host(placement.compute_node(8, 1))
    for index in range(3):
        spec = request(SHARED)
        assert passes([host], spec, index) == [host]
        host.consume_from_request(spec)


ABLE = {
    "plain": (8, (L3_CAT, MBA, MBA_PERCENT)),
    "cdp": (8, (L3_CAT, L3_CDP, MBA, MBA_PERCENT)),
    "mba_MBps": (8, (L3_CAT, MBA, MBA_MBPS)),
    "amd": (8, (L3_CAT, MBA, MBA_MBPS)),
    "without MBA": (8, (L3_CAT,)),
    "L2": (8, (L3_CAT, L2_CAT)),
    "L2 alone": (0, (L2_CAT,)),
    "MBA alone": (0, (MBA, MBA_PERCENT)),
    "uncut": (0, ()),
}
"""Hosts of every kind: how many ways of L3 they have, and their traits."""

PINNED = {"hw:cpu_policy": "dedicated"}
L2_WAYS = {**PINNED, "hw:l2_cache_ways": "3"}
CODE_AND_DATA = {"hw:cache_code_ways": "2", "hw:cache_data_ways": "2"}
PERCENT, MBPS = {"hw:mem_bandwidth_percent": "20"}, {"hw:mem_bandwidth_mbps": "900"}
WITH_L3 = {kind for kind, (ways, _) in ABLE.items() if ways}

KEPT: list[tuple[dict[str, str], set[str]]] = [
    (TWO, WITH_L3),
    ({**TWO, "hw:cache_vcpus": "0"}, WITH_L3),
    (SHARED, WITH_L3),
    (CODE_AND_DATA, {"cdp"}),
    ({**CODE_AND_DATA, "hw:cache_policy": "shared"}, {"cdp"}),
    (L2_WAYS, {"L2", "L2 alone"}),
    ({**L2_WAYS, "hw:cache_vcpus": "0"}, {"L2", "L2 alone"}),
    ({**L2_WAYS, **TWO}, {"L2"}),
    ({**L2_WAYS, **SHARED}, {"L2"}),
    ({**L2_WAYS, **CODE_AND_DATA}, set()),
    ({**L2_WAYS, **PERCENT}, set()),
    (PERCENT, {"plain", "cdp", "MBA alone"}),
    ({**PERCENT, **TWO}, {"plain", "cdp"}),
    ({**PERCENT, **SHARED}, {"plain", "cdp"}),
    ({**PERCENT, **CODE_AND_DATA}, {"cdp"}),
    (MBPS, {"mba_MBps", "amd"}),
    ({**MBPS, **TWO}, {"mba_MBps", "amd"}),
    ({**MBPS, **SHARED}, {"mba_MBps", "amd"}),
    ({**MBPS, **CODE_AND_DATA}, set()),
]


def test_only_hosts_that_can_keep_all_of_a_promise_pass_whoever_counts(
    cloud: Cloud, placement: Placement, passes: Any
) -> None:
    requests = [extra_specs.parse_strict(specs) or CacheRequest() for specs, _ in KEPT]
    shared = {
        name: resources.required_traits(found) for found in requests if (name := resources.shared_resource(found))
    }
    nodes = {
        kind: placement.compute_node(
            ways, traits=traits, shared={name: True for name, needed in shared.items() if needed <= set(traits)}
        )
        for kind, (ways, traits) in ABLE.items()
    }
    nodes["agentless"] = placement.bare_node()
    for (specs, kinds), wanted in zip(KEPT, requests, strict=True):
        taken, traits = resources.requested(wanted), resources.required_traits(wanted)
        asking = resources.as_extra_specs(taken)
        for more, candidates in (
            ({}, placement.candidates({})),
            (asking, placement.candidates(taken)),
            (asking | resources.as_required(traits), placement.candidates(taken, traits)),
        ):
            hosts = {kind: cloud.host(node) for kind, node in nodes.items()}
            for host in hosts.values():
                host.allocation_candidates = candidates.get(host.uuid, [])
            found = passes(list(hosts.values()), request({**specs, **more}))
            assert {kind for kind, host in hosts.items() if host in found} == kinds, f"{specs} and {more}"


@pytest.mark.parametrize(("specs", "traits"), [(L2_WAYS, (L2_CAT,)), (MBPS, (MBA_MBPS,))])
def test_a_promise_without_l3_ways_needs_a_control_group_that_is_left(
    cloud: Cloud, placement: Placement, passes: Any, specs: dict[str, str], traits: tuple[str, ...]
) -> None:
    counted = cloud.host(placement.compute_node(8, 1, traits), cloud.server(specs))
    allocated = placement.compute_node(8, 1, traits)
    placement.allocate(allocated, ways=1)
    shared = cloud.host(placement.compute_node(8, 1, traits), cloud.server(SHARED))
    assert passes([counted, cloud.host(allocated), shared], request(specs)) == [shared]


@pytest.mark.parametrize("specs", [L2_WAYS, MBPS, PERCENT, CODE_AND_DATA])
def test_what_no_host_of_the_cloud_can_do_is_no_trouble_with_placement(
    cloud: Cloud, placement: Placement, rooms: Rooms, caplog: pytest.LogCaptureFixture, specs: dict[str, str]
) -> None:
    for trait in placement.unused_traits(resources.TRAITS):
        placement.http.delete(f"/traits/{trait}").raise_for_status()
    assert CacheWaysFilter(rooms).filter_all([cloud.host(placement.compute_node())], request(specs)) == []
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


MIXED = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "2-3", "hw:l2_cache_ways": "3"}


@pytest.mark.parametrize(
    ("specs", "wrong"),
    [
        ({**L2_WAYS, "hw:cache_vcpus": "0-3"}, ""),
        ({**MIXED, "hw:cache_vcpus": "2,3"}, ""),
        ({**TWO, "hw:cache_vcpus": "3"}, ""),
        (MIXED, "hw:l2_cache_ways='3': allowed only where each vCPU that gets the ways is pinned"),
        ({**MIXED, "hw:cache_vcpus": "1-2"}, "hw:l2_cache_ways='3': allowed only where each vCPU"),
        ({"hw:l2_cache_ways": "3"}, "as hw:cpu_policy=dedicated has it"),
        ({**TWO, "hw:l2_cache_ways": "3"}, "as hw:cpu_policy=dedicated has it"),
        ({"hw:numa_nodes": "2", "hw:l2_cache_ways": "3"}, "as hw:cpu_policy=dedicated has it"),
        (
            {**TWO, "hw:cache_vcpus": "3-4"},
            "hw:cache_vcpus='3-4': the flavor has 4 vCPUs, so only numbers from 0 to 3",
        ),
    ],
)
def test_a_promise_that_no_host_could_keep_with_such_vcpus_fits_nowhere_and_the_log_says_why(
    cloud: Cloud,
    placement: Placement,
    passes: Any,
    caplog: pytest.LogCaptureFixture,
    specs: dict[str, str],
    wrong: str,
) -> None:
    host = cloud.host(placement.compute_node(traits=(L3_CAT, L2_CAT)))
    assert passes([host], request(specs, vcpus=4)) == ([] if wrong else [host])
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == bool(wrong)
    assert all("flavor c2.cache" in line and wrong in line for line in told)


def test_bandwidth_needs_a_host_that_can_limit_it(cloud: Cloud, placement: Placement, passes: Any) -> None:
    both = cloud.host(placement.compute_node(traits=(L3_CAT, MBA_PERCENT)))
    full = cloud.host(placement.compute_node(2, traits=(L3_CAT, MBA_PERCENT)), cloud.server(TWO))
    ways_only = cloud.host(placement.compute_node())
    percent = {"hw:mem_bandwidth_percent": "20"}
    assert passes([both, full, ways_only], request(percent)) == [both, full]
    assert passes([both, full, ways_only], request({**TWO, **percent})) == [both]


def test_several_servers_of_one_request_are_counted_while_they_are_placed(
    cloud: Cloud, placement: Placement, passes: Any, rooms: Rooms
) -> None:
    host = cloud.host(placement.compute_node(4), cloud.server({}))
    for index, uuid in enumerate([str(uuid4()), str(uuid4())]):
        spec = request(TWO, uuid)
        assert passes([host], spec, index) == [host]
        host.consume_from_request(spec)
        # What the scheduler does for the (anti-)affinity filters.
        host.instances[uuid] = objects.Instance(uuid=uuid)
    assert passes([host], request(TWO), 2) == []


def test_a_rebuild_is_not_filtered(cloud: Cloud, placement: Placement, passes: Any, asked: Asked) -> None:
    mine = cloud.server(FOUR)
    host = cloud.host(placement.compute_node(2), mine)
    assert passes([host], request(FOUR, mine.uuid, scheduler_hints={"_nova_check_type": ["rebuild"]})) == [host]
    assert asked.paths == []


@pytest.mark.parametrize(("ways", "others", "fits"), [("4", "2", True), ("5", "2", False), ("6", "1", False)])
def test_a_resize_to_the_same_host_counts_the_others_alone(
    cloud: Cloud, placement: Placement, passes: Any, ways: str, others: str, fits: bool
) -> None:
    mine = cloud.server(TWO)
    host = cloud.host(placement.compute_node(6), mine, cloud.server({"hw:cache_ways": others}))
    assert bool(passes([host], request({"hw:cache_ways": ways}, mine.uuid))) is fits


@pytest.mark.parametrize("move", ["live or cold migration", "evacuation", "unshelve"])
def test_a_move_needs_the_ways_where_it_goes(cloud: Cloud, placement: Placement, rooms: Rooms, move: str) -> None:
    mine = cloud.server(TWO)
    source = cloud.host(placement.compute_node(8), mine)
    roomy = cloud.host(placement.compute_node(4), cloud.server(TWO))
    full = cloud.host(placement.compute_node(3), cloud.server(TWO))
    hosts = {
        "live or cold migration": [source, roomy, full],  # conductor: the source is ignored
        "evacuation": [source, roomy, full],  # so is the host that died
        "unshelve": [roomy, full],  # the server is on no host
    }[move]
    # Nova's own code heeds what is ignored and what is asked for, and has the filters look at the rest.
    manager = HostManager.__new__(HostManager)
    manager.filter_handler = HostFilterHandler()
    manager.enabled_filters = [CacheWaysFilter(rooms)]
    left = {"ignore_hosts": [source.host]}
    assert list(manager.get_filtered_hosts(hosts, request(TWO, mine.uuid, **left))) == [roomy]
    for chosen, fits in ((roomy, True), (full, False)):
        there = objects.Destination(host=chosen.host, node=chosen.nodename)
        spec = request(TWO, mine.uuid, **left, requested_destination=there)
        assert bool(list(manager.get_filtered_hosts(hosts, spec))) is fits


def test_a_flavor_that_can_not_be_understood_fits_nowhere_and_the_log_says_why(
    cloud: Cloud, placement: Placement, passes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    host = cloud.host(placement.compute_node())
    assert passes([host], request({"hw:cache_policy": "shared"})) == []
    (message,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "flavor c2.cache" in message
    assert "allowed only together with hw:cache_ways" in message


@pytest.mark.parametrize(
    "specs",
    [
        {"resources1:VCPU": "1", "resources2:MEMORY_MB": "64"},
        {"hw:cpu_policy": "dedicated", "resources1:MEMORY_MB": "64"},
    ],
    ids=["all numbered", "all but CPUs that are its own"],
)
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_flavor_may_take_nothing_beside_its_numbered_request_groups(
    cloud: Cloud, placement: Placement, passes: Any, specs: dict[str, str], hosts: int
) -> None:
    able = [cloud.host(placement.compute_node(traits=(L3_CAT, SHARED_ROOM))) for _ in range(hosts)]
    unable = cloud.host(placement.compute_node(traits=()))
    asked = request({**SHARED, **specs, "group_policy": "none"})
    assert passes(able, asked) == able
    assert passes([*able, unable], asked) == able


def test_without_placement_no_promise_is_made_and_the_log_says_why(
    cloud: Cloud, placement: Placement, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable() -> Any:
        raise ConnectFailure("nobody listens")

    ours = CacheWaysFilter(Rooms(Inventory(unreachable), Promises(lambda *_: {}), Recent(unreachable)))
    host = cloud.host(placement.compute_node())
    assert ours.filter_all([host], request({})) == [host]
    assert ours.filter_all([host], request(TWO)) == []
    assert any("nobody listens" in record.message and record.levelno == logging.WARNING for record in caplog.records)


def test_one_host_alone_can_be_asked_about(cloud: Cloud, placement: Placement, rooms: Rooms) -> None:
    ours = CacheWaysFilter(rooms)
    assert ours.host_passes(cloud.host(placement.compute_node(2)), request(TWO))
    assert not ours.host_passes(cloud.host(placement.compute_node(1)), request(TWO))


def test_the_log_names_what_a_refused_host_lacks(
    cloud: Cloud, placement: Placement, passes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nova_plugin")
    hosts = [
        cloud.host(placement.compute_node(4), cloud.server(FOUR)),
        cloud.host(placement.compute_node(4, 1), cloud.server(ONE)),
        cloud.host(placement.bare_node()),
    ]
    assert passes(hosts, request(ONE)) == []
    told = [record.message for record in caplog.records if record.name == "nova_plugin.scheduler.filters"]
    reasons = ["has 0 of 1 ways", "has no control group left", "has no provider of cache in Placement, or one"]
    assert all(host.host in line for host, line in zip(hosts, told, strict=True)), told
    assert all(reason in line for line, reason in zip(told, reasons, strict=True)), told
