# SPDX-License-Identifier: Apache-2.0
"""What the hosts can promise, as the gateways keep it in Placement."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

import nova.conf
from keystoneauth1.exceptions import ClientException

from nova_plugin.scheduler import options, placement
from nova_plugin.scheduler.cached import Cached
from nova_plugin.scheduler.placement import Client, Provider

CONF = nova.conf.CONF
options.register(CONF)

REMEMBERED = 32
"""How many answers are kept at most. There are as many questions as flavors, sizes of images and aggregates."""


class Inventory:
    """Placement's answers, each used again for ``inventory_lifetime``.

    :param client: gives the client; asked at each question, because nova-scheduler may start before Placement does.
    :param clock: seconds, ever rising.
    """

    def __init__(self, client: Callable[[], Client], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, Cached[dict[str, Provider]]] = OrderedDict()

    def providers(self, query: str) -> Mapping[str, Provider]:
        """The providers of cache of the hosts that a query finds, by the UUID of the compute node.

        :param query: as :func:`nova_plugin.scheduler.question.of` makes it.
        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told.
        """
        return self._cached(query).get()

    def outdate(self, query: str, age: float) -> bool:
        """Have a query asked anew when it is wanted next, if its answer is older than that; whether it is.

        :param age: seconds.
        """
        return self._cached(query).outdate(age)

    def _cached(self, query: str) -> Cached[dict[str, Provider]]:
        with self._lock:
            found = self._answers.get(query)
            if found is None:
                found = Cached(
                    f"of the hosts' caches ({query})",
                    lambda: placement.providers(self._connected(), query),
                    _lifetime,
                    self._clock,
                )
                self._answers[query] = found
            self._answers.move_to_end(query)
            while len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        return found

    def _connected(self) -> Client:
        try:
            return self._client()
        except ClientException as error:
            raise placement.PlacementFailed(f"there is no way to Placement: {error}") from error


def _lifetime() -> float:
    return float(CONF.vmqos.inventory_lifetime)
