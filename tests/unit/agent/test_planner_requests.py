# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.agent.serve.test_vms import GROUP, UUID, snapshot, with_record
from vmqos.agent import planner_requests
from vmqos.agent.act.move_tasks import TaskGroup, TaskPlacement
from vmqos.agent.observe.cache_vcpus import CacheVcpus
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.snapshot import Snapshot
from vmqos.allocation import Layout, Request
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource

WANTS = CacheRequest(ways=6)


def asked_for(known: Snapshot, waiting: Set[str] = frozenset()) -> list[Request]:
    assert known.resctrl is not None
    return planner_requests.make(known.resctrl, known.vms.values(), known.topology, waiting)


def wanting(**changes: Any) -> Snapshot:
    return with_record(snapshot(), request=FlavorRequest(wants=WANTS, asked=WANTS), **changes)


def test_a_vm_asks_for_what_its_flavor_says_where_it_can_run() -> None:
    assert asked_for(wanting()) == [Request(UUID, WANTS, frozenset({0}), 5)]


@pytest.mark.parametrize(
    "changes",
    [
        {"request": FlavorRequest()},
        {"request": FlavorRequest(wants=WANTS, hands_off=True)},
        {"vcpus": CacheVcpus(frozenset({7}), frozenset(), ())},
    ],
    ids=["it wants nothing", "libvirt placed it", "it has none of the vCPUs"],
)
def test_nothing_is_asked_for_where_nothing_can_be_arranged(changes: dict[str, Any]) -> None:
    assert asked_for(with_record(wanting(), **changes)) == []


def test_a_vm_that_may_run_nowhere_known_pays_on_every_cache() -> None:
    known = wanting()
    (found,) = asked_for(replace(known, topology=replace(known.topology, cpus={})))
    assert found.caches == {0, 1}


def test_a_vm_for_which_something_failed_asks_for_what_it_has_until_it_is_tried_again() -> None:
    (found,) = asked_for(wanting(), {UUID})
    assert found.wants == CacheRequest(ways=4), "its group has four ways"


@pytest.mark.parametrize(
    ("default", "there", "asked_there"),
    [(0x03C, 0x700, 3), (0x700, 0x700, 3), (0x7FF, 0x7FF, 4), (0x7FF, 0x003, 2)],
    ids=["on its way", "the default group's", "all", "few of the default group's"],
)
def test_a_vm_that_came_to_another_cache_as_something_failed_keeps_what_it_had(
    default: int, there: int, asked_there: int
) -> None:
    known = wanting()
    assert known.resctrl is not None
    masks = {"": default, GROUP: there}
    groups = tuple(
        replace(group, masks={**group.masks, 1: CapacityBitmask(masks[group.name])})
        for group in known.resctrl.layout.groups
    )
    known = replace(known, resctrl=replace(known.resctrl, layout=Layout(groups)))
    everywhere = replace(known.vms[UUID].observed, cpus=frozenset({1, 2}))
    (found,) = asked_for(with_record(known, observed=everywhere), {UUID})
    assert (found.wants, found.caches) == (CacheRequest(ways=4), {0, 1})
    assert found.wants_on == ({1: CacheRequest(ways=asked_there)} if asked_there != 4 else {})


def test_a_vm_that_moved_to_another_cache_as_something_failed_asks_for_no_ways_that_it_was_not_granted() -> None:
    known = wanting()
    assert known.resctrl is not None
    every = CapacityBitmask(0x7FF)
    groups = tuple(replace(group, masks={**group.masks, 1: every}) for group in known.resctrl.layout.groups)
    known = replace(known, resctrl=replace(known.resctrl, layout=Layout(groups)))
    known = with_record(known, observed=replace(known.vms[UUID].observed, cpus=frozenset({2})))
    assert known.resctrl is not None
    asked = planner_requests.make(known.resctrl, known.vms.values(), known.topology, {UUID}, {GROUP: {0: 4, 1: 0}})
    assert asked == [], "the whole cache that its group shows is the default group's"


def test_a_vm_for_which_something_failed_keeps_each_limit_where_it_is() -> None:
    known = wanting()
    assert known.resctrl is not None
    groups = tuple(
        replace(group, throttles={0: 50, 1: 20} if group.name == GROUP else {}) for group in known.resctrl.layout.groups
    )
    memory = BandwidthResource("MB", 8, 10, 10, True, (0, 1))
    capabilities = replace(known.resctrl.capabilities, bandwidths={"MB": memory})
    known = replace(known, resctrl=replace(known.resctrl, layout=Layout(groups), capabilities=capabilities))
    everywhere = replace(known.vms[UUID].observed, cpus=frozenset({1, 2}))
    (found,) = asked_for(with_record(known, observed=everywhere), {UUID})
    assert (found.wants, found.wants_on) == (
        CacheRequest(ways=4, bandwidth_percent=50),
        {1: CacheRequest(ways=4, bandwidth_percent=20)},
    )


def test_a_vm_without_a_group_asks_for_nothing_until_it_is_tried_again() -> None:
    known = wanting(tasks=None)
    assert known.resctrl is not None
    groups = tuple(group for group in known.resctrl.layout.groups if group.name != GROUP)
    alone = replace(known, resctrl=replace(known.resctrl, layout=Layout(groups)))
    assert asked_for(alone, {UUID}) == []


def test_a_member_of_a_class_stays_there_until_it_is_tried_again() -> None:
    shared = replace(WANTS, policy=CachePolicy.SHARED)
    there = TaskPlacement(TaskGroup("vmqos.shared-ways6"), frozenset({100}), frozenset({100}))
    known = wanting(tasks=there)
    known = with_record(known, request=FlavorRequest(wants=shared, asked=shared))
    assert known.resctrl is not None
    groups = tuple(group for group in known.resctrl.layout.groups if group.name != GROUP)
    (found,) = asked_for(replace(known, resctrl=replace(known.resctrl, layout=Layout(groups))), {UUID})
    assert found.wants == shared
