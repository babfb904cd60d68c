# SPDX-License-Identifier: Apache-2.0
"""What the hosts of the cloud can promise, as the agents keep it in Placement."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping

import nova.conf
from keystoneauth1.exceptions import ClientException

from nova_plugin.scheduler import options, placement
from nova_plugin.scheduler.cached import Cached
from nova_plugin.scheduler.placement import Client, Stock

CONF = nova.conf.CONF
options.register(CONF)


class Inventory:
    """Placement's answers, each asked for once for all hosts and used again for ``inventory_lifetime``.

    :param client: gives the client; asked at each question, because nova-scheduler may start before Placement does.
    :param clock: seconds, ever rising.
    """

    def __init__(self, client: Callable[[], Client], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._stocks = Cached("what the hosts' caches have", self._ask_stocks, _lifetime, clock)
        self._capable: dict[frozenset[str], Cached[frozenset[str]]] = {}

    def stocks(self) -> Mapping[str, Stock]:
        """What the hosts have, by the UUID of the compute node; without those that have no way or no group left.

        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told.
        """
        return self._stocks.get()

    def capable(self, traits: frozenset[str]) -> frozenset[str]:
        """The UUIDs of the compute nodes that can do all of that; not for an empty set, which anybody can do.

        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told.
        """
        known = self._capable.get(traits)
        if known is None:
            name = f"which hosts have {', '.join(sorted(traits))}"
            fresh = Cached(name, functools.partial(self._ask_capable, traits), _lifetime, self._clock)
            known = self._capable.setdefault(traits, fresh)
        return known.get()

    def _ask_stocks(self) -> dict[str, Stock]:
        return placement.stocks(self._connected())

    def _ask_capable(self, traits: frozenset[str]) -> frozenset[str]:
        return placement.hosts_with(self._connected(), traits)

    def _connected(self) -> Client:
        try:
            return self._client()
        except ClientException as error:
            raise placement.PlacementFailed(f"there is no way to Placement: {error}") from error


def _lifetime() -> float:
    return float(CONF.vmqos.inventory_lifetime)
