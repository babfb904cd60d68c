# SPDX-License-Identifier: Apache-2.0
"""What the hosts of the cloud can promise, as the agents keep it in Placement."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import nova.conf
from keystoneauth1.exceptions import ClientException

from nova_plugin.scheduler import options, placement
from nova_plugin.scheduler.cached import Cached
from nova_plugin.scheduler.demand import Amount
from nova_plugin.scheduler.placement import Client, Stock

CONF = nova.conf.CONF
options.register(CONF)

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class Inventory:
    """Placement's answers, each asked for once for all hosts and used again for ``inventory_lifetime``.

    :param client: gives the client; asked at each question, because nova-scheduler may start before Placement does.
    :param clock: seconds, ever rising.
    """

    def __init__(self, client: Callable[[], Client], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._stocks: dict[Amount, Cached[dict[str, Stock]]] = {}
        self._capable: dict[frozenset[str], Cached[frozenset[str]]] = {}

    def stocks(self, amount: Amount) -> Mapping[str, Stock]:
        """What the hosts have where Placement would allocate that much, by the UUID of the compute node.

        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told.
        """
        name = f"which hosts have {amount.ways} ways left"
        return self._cached(self._stocks, amount, name, placement.stocks).get()

    def capable(self, traits: frozenset[str]) -> frozenset[str]:
        """The UUIDs of the compute nodes that can do all of that; not for an empty set, which anybody can do.

        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told.
        """
        name = f"which hosts have {', '.join(sorted(traits))}"
        return self._cached(self._capable, traits, name, placement.hosts_with).get()

    def _cached(self, known: dict[Q, Cached[A]], question: Q, name: str, ask: Callable[[Client, Q], A]) -> Cached[A]:
        """The answers to one question; there are as many questions as there are promises among the flavors."""
        found = known.get(question)
        if found is None:
            fresh = Cached(name, lambda: ask(self._connected(), question), _lifetime, self._clock)
            found = known.setdefault(question, fresh)
        return found

    def _connected(self) -> Client:
        try:
            return self._client()
        except ClientException as error:
            raise placement.PlacementFailed(f"there is no way to Placement: {error}") from error


def _lifetime() -> float:
    return float(CONF.vmqos.inventory_lifetime)
