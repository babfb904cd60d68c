# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping

from vmqos.agent import unseen
from vmqos.agent.view import ResctrlView
from vmqos.allocation import Group, Layout, owner_of
from vmqos.openstack.extra_specs import CachePolicy
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import Capabilities

A, B = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


def view(
    groups: Mapping[str, Mapping[int, int]], monitoring_groups: Mapping[str, tuple[str, ...]] | None = None
) -> ResctrlView:
    layout = Layout(
        tuple(
            Group(name, owner_of(name), {cache: CapacityBitmask(bits) for cache, bits in masks.items()})
            for name, masks in groups.items()
        )
    )
    return ResctrlView((0, 0), Capabilities(), layout, {}, monitoring_groups or {})


def test_a_vm_with_ways_of_its_own_asks_for_as_many_where_it_has_them() -> None:
    now = view({"": {0: 0x7F0, 1: 0x7FF}, f"vmqos.{A}": {0: 0x00F, 1: 0x7FF}})
    (asked,) = unseen.requests(now, {A})
    assert (asked.uuid, asked.wants.ways, asked.wants.policy) == (A, 4, CachePolicy.EXCLUSIVE)
    assert asked.caches == {0}, "on the other cache it has what everybody has"


def test_a_vm_of_a_class_asks_for_its_cap() -> None:
    now = view({"": {0: 0x7FF}, "vmqos.shared-ways3": {0: 0x7}}, {"vmqos.shared-ways3": (f"vmqos.{A}", f"vmqos.{B}")})
    (asked,) = unseen.requests(now, {B})
    assert (asked.uuid, asked.wants.ways, asked.wants.policy) == (B, 3, CachePolicy.SHARED)


def test_a_vm_that_has_nothing_asks_for_nothing() -> None:
    now = view({"": {0: 0x7FF}, "mine": {0: 0x3}}, {"": (f"vmqos.{A}",), "mine": (f"vmqos.{B}",)})
    assert not list(unseen.requests(now, {A, B}))


def test_a_group_that_was_only_just_made_is_no_grant() -> None:
    assert not list(unseen.requests(view({"": {0: 0x7FF}, f"vmqos.{A}": {0: 0x7FF}}), {A}))
