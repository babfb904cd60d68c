# SPDX-License-Identifier: Apache-2.0
"""What another client changes in the middle; the rest has its tests with Placement itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmqos.openstack.placement import Conflict, Inventory, Provider
from vmqos.openstack.provider_sync import Wanted, synchronize

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
