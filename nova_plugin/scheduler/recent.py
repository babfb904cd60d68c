# SPDX-License-Identifier: Apache-2.0
"""The servers that this scheduler placed a moment ago, which neither their hosts nor the database tell of yet."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from keystoneauth1.exceptions import ClientException
from oslo_log import log

from nova_plugin.scheduler import placement, promises
from nova_plugin.scheduler.demand import Taken
from nova_plugin.scheduler.placement import Client, PlacementFailed

LOG = log.getLogger(__name__)

REMEMBERED = 300.0
"""Seconds for which a server is remembered: until its image is there, its process runs, and the agent has told."""

UNCLAIMED = 10.0
"""Seconds after which a server without an allocation is forgotten: Nova claims within the request that was filtered. It
is not forgotten before Placement was asked after that time: the next request may come later."""

ASKED_AGAIN = 60.0
"""Seconds after which Placement is asked anew where a server is that its host does not tell of. Where a build fails,
Nova's conductor claims on another host, and asks no scheduler (``build_instances`` of nova.conductor.manager)."""

MOST_ASKED_ANEW = 20
"""For how many servers Placement is asked before that time where a request finds no room; each is a question."""

MOST = 1000
"""How many servers are remembered at most; the oldest are forgotten first."""


@dataclass(slots=True)
class _Server:
    """A server that passed the filter.

    :ivar taken: what it takes of its host.
    :ivar at: when it passed, in seconds of the clock.
    :ivar before: the UUIDs of the providers that it held something of when it passed.
    :ivar providers: the UUIDs of the providers that Nova claimed from since; empty while that is not known.
    :ivar asked_at: when Placement told these, or that there are none, in seconds of the clock.
    :ivar has_come: whether its host has told of it.
    """

    taken: Taken
    at: float
    before: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    asked_at: float = 0.0
    has_come: bool = False


class Recent:
    """Remembers what the filter let through, and asks Placement for each server where Nova has claimed for it.

    :param client: gives the client; asked at each question.
    :param clock: seconds, ever rising.
    """

    def __init__(self, client: Callable[[], Client], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._servers: dict[str, _Server] = {}

    def note(self, server: str, taken: Taken, *, may_hold: bool = False) -> None:
        """Remember that a server passed.

        :param server: its UUID.
        :param taken: what it takes of whatever host it comes to.
        :param may_hold: whether it may hold something in Placement already. An evacuated server holds what it had on
            the host that died until Nova claims for it, and after that as well (``claim_resources`` of Nova's report
            client). For other moves, a migration holds that.
        """
        known = _Server(taken, self._clock())
        if may_hold:
            self._find({server: known})
            known.before, known.providers = known.providers, frozenset()
        with self._lock:
            self._servers.pop(server, None)
            self._servers[server] = known
            while len(self._servers) > MOST:
                del self._servers[next(iter(self._servers))]

    def by_provider(self, without: str, hosts: Iterable[Any] = ()) -> Mapping[str, Mapping[str, Taken]]:
        """What each of the servers takes, by the UUID of the provider and the server's own.

        Where Placement does not tell where a server is, that server is left out. So is one that has come to its host
        and is not there any more: it was deleted or shelved, or went back to where it came from.

        :param without: the UUID of the server that is to be placed.
        :param hosts: the HostStates under consideration.
        """
        now = self._clock()
        with self._lock:
            for server, known in list(self._servers.items()):
                if now - known.at >= REMEMBERED or _is_unclaimed(known):
                    del self._servers[server]
            servers = {server: known for server, known in self._servers.items() if server != without}
        self._find({server: known for server, known in servers.items() if not known.providers or _is_late(known, now)})
        found: dict[str, dict[str, Taken]] = {}
        for server, known in servers.items():
            for provider in known.providers:
                found.setdefault(provider, {})[server] = known.taken
        for host in hosts:
            for server in list(found.get(host.uuid, ())):
                known = servers[server]
                if promises.tells_of(host, server):
                    known.has_come = True
                elif known.has_come:
                    del found[host.uuid][server]
        return found

    def outdate(self, hosts: Iterable[Any], age: float) -> bool:
        """Have it asked anew where servers are that these hosts wait for; whether that is older for any of them.

        Such a server may have come and gone between two requests, so that its host was never seen to tell of it.

        :param hosts: HostStates.
        :param age: seconds.
        """
        now, nodes = self._clock(), {host.uuid for host in hosts}
        with self._lock:
            awaited = [
                known for known in self._servers.values() if not (known.has_come or nodes.isdisjoint(known.providers))
            ]
        older = sorted((known for known in awaited if now - known.asked_at > age), key=lambda known: known.asked_at)
        for known in older[:MOST_ASKED_ANEW]:
            known.asked_at = -math.inf
        return bool(older)

    def _find(self, servers: Mapping[str, _Server]) -> None:
        try:
            for server, known in servers.items():
                known.providers = placement.claimed_from(self._client(), server) - known.before
                known.asked_at = self._clock()
        except (PlacementFailed, ClientException) as error:
            LOG.debug("It is not known where servers went that were placed a moment ago: %s", error)


def _is_unclaimed(known: _Server) -> bool:
    return not known.providers and known.asked_at >= known.at + UNCLAIMED


def _is_late(known: _Server, now: float) -> bool:
    return not known.has_come and now - known.asked_at >= ASKED_AGAIN
