# SPDX-License-Identifier: Apache-2.0
"""What Placement is to have of a host, from what the agent says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.agent.serve.test_capacity import view
from tests.unit.allocation.machines import SHARED, machine
from vmqos.agent.serve import capacity
from vmqos.allocation import Policy
from vmqos.extra_specs import CacheRequest
from vmqos.extra_specs.resources import LLC_CLASSES, LLC_OTHERS, LLC_WAYS
from vmqos.gateway.openstack.capacity import MEMBERS, NOTHING, Capacity
from vmqos.openstack.placement import Inventory
from vmqos.resctrl.capabilities import Capabilities

HOST = Capacity(ways=9, longest=9, classes=15)


def test_what_the_agent_says_is_taken_over_as_a_value() -> None:
    listed = Policy(shared_classes=(CacheRequest(4, SHARED), CacheRequest(5, SHARED)), placement_counts=True)
    told = capacity.of(view(machine(closids=3), {"": {0: 0x7FF}}), listed)
    found = Capacity.of(told)
    assert found == Capacity.of({**told, "offered": told["offered"][::-1], "traits": told["traits"][::-1]})
    for key, value in told.items():
        assert getattr(found, key) == (frozenset(value) if isinstance(value, list) else value)


def test_an_empty_host_gives_all_its_ways_to_one_server_or_to_many() -> None:
    assert HOST.inventories == {LLC_WAYS: Inventory(total=9, max_unit=9), LLC_CLASSES: Inventory(total=15)}


def test_one_server_can_have_no_more_than_lies_in_one_piece() -> None:
    assert Capacity(ways=8, longest=5).inventories[LLC_WAYS] == Inventory(total=8, max_unit=5)


def test_a_request_below_the_smallest_mask_can_not_be_placed_there() -> None:
    found = Capacity(ways=18, longest=18, fewest=2)
    assert found.inventories[LLC_WAYS] == Inventory(total=18, min_unit=2, max_unit=18)


def test_no_running_vm_was_promised_more_than_one_server_can_have() -> None:
    assert replace(HOST, longest=3, held=4).inventories[LLC_WAYS] == Inventory(total=9, max_unit=4)
    assert replace(HOST, longest=5, held=4).inventories[LLC_WAYS] == Inventory(total=9, max_unit=5)


def test_a_listed_class_is_offered_without_limit_and_one_without_a_closid_is_all_reserved() -> None:
    found = replace(HOST, offered=frozenset({"CUSTOM_A", "CUSTOM_B"}), refused=frozenset({"CUSTOM_C"}))
    classes = {"CUSTOM_A": MEMBERS, "CUSTOM_B": MEMBERS, "CUSTOM_C": 0}
    assert {name: found.inventories[name].capacity for name in classes} == classes
    assert found.inventories["CUSTOM_C"] == Inventory(total=1, reserved=1)


def test_classes_that_are_not_listed_are_counted_where_their_number_is_bounded() -> None:
    assert LLC_OTHERS not in HOST.inventories
    assert replace(HOST, others=2).inventories[LLC_OTHERS] == Inventory(total=2)
    assert replace(HOST, others=0).inventories[LLC_OTHERS].capacity == 0


@pytest.mark.parametrize(
    "found",
    [
        NOTHING,
        Capacity.of(capacity.of(view(machine(), {"": {0: 0x7FF}}), Policy(default_ways_min=11))),
        Capacity.of(capacity.of(view(Capabilities(), {"": {}}), Policy())),
        Capacity.of(capacity.of(view(machine(ways=4, fewest=2), {"": {0: 0xF}}), Policy(default_ways_min=3))),
    ],
)
def test_nothing_to_promise_is_an_inventory_that_is_all_reserved(found: Capacity) -> None:
    ways = found.inventories[LLC_WAYS]
    assert ways.capacity == 0
    assert ways.total == ways.reserved >= 1
    assert 1 <= ways.min_unit <= ways.max_unit


def test_a_host_that_can_not_be_partitioned_has_nothing_to_give() -> None:
    assert Capacity.of(capacity.of(view(Capabilities(), {"": {}}), Policy())) == NOTHING
