# SPDX-License-Identifier: Apache-2.0
"""What a host can promise at all, in Placement's words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vmqos.extra_specs import resources
from vmqos.local_api import contract
from vmqos.openstack.placement import Inventory

MEMBERS = 1_000_000
"""How many VMs Placement lets into one shared class: its control group serves any number."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a host has to give: :class:`vmqos.local_api.contract.Capacity` says what the fields mean.

    :ivar held: 0 where Placement itself is asked what VMs hold.
    """

    ways: int = 0
    longest: int = 0
    fewest: int = 1
    classes: int = 0
    offered: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    others: int | None = None
    held: int = 0
    traits: frozenset[str] = frozenset()

    @classmethod
    def of(cls, told: contract.Capacity) -> Capacity:
        """What the agent says of its host."""
        return cls(
            ways=told["ways"],
            longest=told["longest"],
            fewest=told["fewest"],
            classes=told["classes"],
            offered=frozenset(told["offered"]),
            refused=frozenset(told["refused"]),
            others=told["others"],
            held=told["held"],
            traits=frozenset(told["traits"]),
        )

    @property
    def inventories(self) -> dict[str, Inventory]:
        """What Placement is to have, by resource class.

        Where there is nothing to give there are inventories, too: what VMs still hold can't be taken out of Placement.
        """
        ways = _inventory(self.ways, self.fewest, self.longest)
        return {
            resources.LLC_WAYS: replace(ways, max_unit=max(ways.max_unit, self.held)),
            resources.LLC_CLASSES: _inventory(self.classes, 1, 1),
            **dict.fromkeys(sorted(self.offered), _inventory(MEMBERS, 1, 1)),
            **dict.fromkeys(sorted(self.refused), _inventory(0, 1, 1)),
            **({} if self.others is None else {resources.LLC_OTHERS: _inventory(self.others, 1, 1)}),
        }


NOTHING = Capacity()
"""What a host has to give that can't be partitioned."""


def _inventory(amount: int, least: int, most: int) -> Inventory:
    """Placement knows no total of 0: one that is reserved stands for it."""
    if amount < least or most < least:
        return Inventory(total=max(1, least), reserved=max(1, least), min_unit=least, max_unit=max(1, least))
    return Inventory(total=amount, min_unit=least, max_unit=most)
