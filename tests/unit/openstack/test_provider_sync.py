# SPDX-License-Identifier: Apache-2.0
"""What another client changes in the middle; the rest has its tests with Placement itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from vmqos.openstack.placement import Conflict, Inventory, Provider
from vmqos.openstack.provider_sync import Synced, Wanted, synchronize

WAYS = "CUSTOM_LLC_WAYS"
WANTED = Wanted("node-1", "node-1_LLC", {WAYS: Inventory(8, max_unit=8)}, frozenset(), frozenset())


class PlayedPlacement:
    """One compute node with its provider of cache.

    :ivar before_traits: what another client has the inventories be, right before the traits are asked for.
    """

    def __init__(self) -> None:
        self.generation = 1
        self.there: dict[str, Inventory] = dict(WANTED.inventories)
        self.before_traits: dict[str, Inventory] | None = None

    def find(self, name: str) -> Provider:
        if name == WANTED.compute_node:
            return Provider("root", name, 1, None)
        return Provider("cache", name, self.generation, "root")

    def inventories(self, provider: Provider) -> tuple[int, dict[str, Inventory]]:
        return self.generation, dict(self.there)

    def set_inventories(self, provider: Provider, generation: int, wanted: Mapping[str, Inventory]) -> int:
        if generation != self.generation:
            raise Conflict
        self.there, self.generation = dict(wanted), generation + 1
        return self.generation

    def traits(self, provider: Provider) -> tuple[int, frozenset[str]]:
        if self.before_traits is not None:
            self.there, self.before_traits, self.generation = self.before_traits, None, self.generation + 1
        return self.generation, frozenset()

    def set_traits(self, provider: Provider, generation: int, wanted: Iterable[str]) -> int:
        raise AssertionError("there are none to set")

    def claims(self, provider: Provider) -> list[dict[str, int]]:
        return []

    def usages(self, provider: Provider) -> dict[str, int]:
        return {}

    def ensure_class(self, name: str) -> None:
        raise AssertionError("it is known")


def test_what_another_client_changes_between_the_inventories_and_the_traits_is_not_taken_for_settled() -> None:
    placement = PlayedPlacement()
    placement.before_traits = {WAYS: Inventory(8, reserved=8, max_unit=8)}
    done = synchronize(placement, WANTED)  # type: ignore[arg-type]
    synchronize(placement, WANTED, done)  # type: ignore[arg-type]
    assert placement.there == WANTED.inventories


def synced(placement: PlayedPlacement, last: Synced | None = None, wanted: Wanted = WANTED) -> Synced:
    return synchronize(placement, wanted, last)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({WAYS: Inventory(4, max_unit=4)}, f"of {WAYS} total 8 is 4 now, max_unit 8 is 4 now"),
        ({}, f"{WAYS} is gone"),
        # As 'vmqos placement withdraw' leaves it.
        ({WAYS: Inventory(8, reserved=8, max_unit=8)}, ""),
        # Allocations raise the generation alone.
        ({WAYS: Inventory(8, max_unit=8)}, ""),
        ({WAYS: Inventory(8, max_unit=8), "VCPU": Inventory(4, max_unit=4)}, ""),
    ],
)
def test_what_another_client_changed_of_what_was_left_is_told_once_and_put_right(
    there: dict[str, Inventory], told: str
) -> None:
    placement = PlayedPlacement()
    placement.ensure_class = lambda name: None  # type: ignore[method-assign]
    done = synced(placement)
    assert done.changed_by_other == ""
    placement.there, placement.generation = there, placement.generation + 1
    again = synced(placement, done)
    assert again.changed_by_other == told
    assert placement.there[WAYS] == WANTED.inventories[WAYS]
    assert synced(placement, again).changed_by_other == ""


def test_two_gateways_that_keep_one_provider_each_find_what_the_other_one_wrote() -> None:
    placement = PlayedPlacement()
    other = replace(WANTED, inventories={WAYS: Inventory(4, max_unit=4)})
    mine, others = synced(placement), synced(placement, None, other)
    for _ in range(3):
        mine, others = synced(placement, mine), synced(placement, others, other)
        assert "total 8 is 4 now" in mine.changed_by_other
        assert "total 4 is 8 now" in others.changed_by_other


def test_what_a_gateway_itself_changes_is_no_other_clients_change() -> None:
    placement = PlayedPlacement()
    done = synced(placement)
    less = replace(WANTED, inventories={WAYS: Inventory(6, max_unit=6)})
    changed = synced(placement, done, less)
    assert changed.changed and changed.changed_by_other == ""
    assert synced(placement, changed, less).changed_by_other == ""
