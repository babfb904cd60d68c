# SPDX-License-Identifier: Apache-2.0
"""How many ways the hosts of the cloud can promise to one server, over Placement's API with openstacksdk."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmqos.cli import exceptions
from vmqos.cli.flavor import api
from vmqos.extra_specs.resources import L3_CAT, LLC_WAYS

if TYPE_CHECKING:
    from openstack.connection import Connection

_VERSION = "1.29"
"""Placement's API version (Rocky) from which child providers, as those of the cache are, can be candidates."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A number of ways that no host can promise to one server, whatever is free.

    :ivar least: the fewest ways that any host promises to one server.
    :ivar most: the most ways that any host does.
    """

    least: int
    most: int

    def told(self, ways: int) -> str:
        """What is wrong with a promise of so many ways."""
        if ways > self.most:
            return f"promises {ways} ways; the host with the most can promise {self.most} to one server"
        if ways < self.least:
            return f"promises {ways} ways; the host with the smallest masks promises no fewer than {self.least}"
        return f"promises {ways} ways; no host does, though they promise from {self.least} to {self.most} ways"


def misfits(connection: Connection, amounts: Collection[int]) -> dict[int, Misfit]:
    """Those of the numbers of ways that no host can promise to one server.

    Placement is asked once for each number whether any host has as many left. Only where none has, every host is asked
    for its size, one request each: it may be full.

    :param amounts: numbers of ways, 1 or more.
    :raises vmqos.cli.exceptions.CloudFailed: if Placement does not answer, or refuses; or if no host promises any ways.
    """
    wanting = [amount for amount in sorted(set(amounts)) if not _is_left(connection, amount)]
    if not wanting:
        return {}
    sizes = list(_sizes(connection))
    if not sizes:
        raise exceptions.CloudFailed(problem="no host has told Placement of cache ways yet")
    misfit = Misfit(min(least for least, _ in sizes), max(most for _, most in sizes))
    return {amount: misfit for amount in wanting if not any(least <= amount <= most for least, most in sizes)}


def _is_left(connection: Connection, ways: int) -> bool:
    """Whether any host has so many ways left for one server."""
    found = api.asked_of_placement(
        connection, "/allocation_candidates", _VERSION, resources=f"{LLC_WAYS}:{ways}", limit="1"
    )
    return bool(found and found["allocation_requests"])


def _sizes(connection: Connection) -> Iterator[tuple[int, int]]:
    """The fewest and the most ways that each host promises to one server."""
    found = api.asked_of_placement(connection, "/resource_providers", _VERSION, required=L3_CAT)
    for provider in found["resource_providers"] if found else ():
        path = f"/resource_providers/{provider['uuid']}/inventories/{LLC_WAYS}"
        inventory = api.asked_of_placement(connection, path, _VERSION)
        if inventory and inventory["max_unit"] > 0:
            yield inventory["min_unit"], min(inventory["max_unit"], inventory["total"])
