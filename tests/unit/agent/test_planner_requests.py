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
