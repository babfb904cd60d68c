# SPDX-License-Identifier: Apache-2.0
"""How much room hosts have for servers of a flavor."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nova.scheduler.client import report

from nova_plugin.scheduler import moves, promises, question
from nova_plugin.scheduler.demand import Amount, Demand, Taken
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.placement import Provider
from nova_plugin.scheduler.promises import Coming, Promised, Promises
from nova_plugin.scheduler.recent import Recent
from vmqos.extra_specs import CacheRequest, resources
from vmqos.extra_specs.resources import SHARED_FULL, SHARED_ROOM

ANEW_AFTER = 1.0
"""Seconds after which what is known is read anew for a request that finds no room by it."""

_NONE_PROMISED = Promised()
_SEEN = "vmqos_seen"
"""The attribute of a HostState that keeps what was counted; Nova makes HostStates anew for each request."""


class Seen(NamedTuple):
    """A host as it was before the scheduler chose it for any server of the request.

    :ivar servers: how many there were on it; the HostState counts on with each server that it is chosen for.
    :ivar promised: what was promised to them.
    :ivar free: what could be promised yet; ``None`` where Placement would not allocate what the flavor demands.
    """

    servers: int
    promised: Promised
    free: Amount | None


@dataclass(frozen=True, slots=True)
class Rooms:
    """Counts what is free.

    :ivar inventory: what the hosts have.
    :ivar promises: what their servers were promised.
    :ivar recent: the servers that this scheduler placed a moment ago.
    """

    inventory: Inventory
    promises: Promises
    recent: Recent

    def able(self, hosts: Sequence[Any], demand: Demand, spec_obj: Any) -> dict[str, Provider]:
        """The providers of cache of those hosts that have all the traits that are demanded, by the host's UUID.

        :param hosts: HostStates.
        :param spec_obj: the RequestSpec.
        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told what the hosts have.
        """
        told = self.inventory.providers(question.of(spec_obj, hosts, demand)) if hosts else {}
        found = {}
        for host in hosts:
            provider = told.get(host.uuid)
            if provider is not None and demand.traits <= provider.traits:
                found[host.uuid] = provider
        return found

    def free(
        self, hosts: Sequence[Any], demand: Demand, spec_obj: Any, able: Mapping[str, Provider] | None = None
    ) -> list[Amount | None]:
        """What can be promised on each host yet; ``None`` where Placement would not allocate what the flavor demands.

        Where the flavor asks Placement, what Placement allocated is taken. Where it does not, what was promised to the
        servers there and to those on their way is taken, or what Placement allocated, if that is more. What this very
        request takes already is taken as well.

        :param hosts: HostStates.
        :param spec_obj: the RequestSpec.
        :param able: what :meth:`able` found, if it was asked already.
        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told what the hosts have.
        """
        # The weigher asks after the filter, about hosts that are seen.
        unseen = [host for host in hosts if not hasattr(host, _SEEN)]
        if unseen:
            if able is None:
                able = self.able(unseen, demand, spec_obj)
            self._look(unseen, able, demand.placement, spec_obj.instance_uuid)
        each = demand.amount
        return [_left(host, each) for host in hosts]

    def have_class(
        self, hosts: Sequence[Any], demand: Demand, able: Mapping[str, Provider], instance_uuid: str
    ) -> list[bool]:
        """Whether each host has the shared class of a flavor that does not ask Placement for it, or can make it.

        A host has it that keeps a CLOSID for it, or where a server is in it, the one that is to be placed included, or
        is on its way to it, or that this very request has chosen. What the agent told of further classes is older than
        the servers on their way, so each of their classes counts. The databases are asked for the servers only where
        nothing else helps.

        :param hosts: HostStates.
        :param able: what :meth:`able` found of them.
        :param instance_uuid: the server that is to be placed.
        """
        coming = self.recent.by_provider(instance_uuid, hosts)
        classes = {
            host.uuid: _unlisted(able[host.uuid], {taken.shared_class for taken in coming[host.uuid].values()})
            for host in hosts
            if host.uuid in coming
        }
        sure = [_takes_any(able[host.uuid], demand, classes.get(host.uuid)) for host in hosts]
        unsure = [host for host, has in zip(hosts, sure, strict=True) if not (has or hasattr(host, _SEEN))]
        self._look(unsure, able, False, instance_uuid, coming)
        return [
            has or _has_class(host, able[host.uuid], demand, classes.get(host.uuid, 0))
            for host, has in zip(hosts, sure, strict=True)
        ]

    def outdate(self, hosts: Sequence[Any], demand: Demand, spec_obj: Any) -> bool:
        """Forget what was known of these hosts for more than a moment, and what was counted by it; whether it was.

        A host may have been full then, of whatever the flavor takes, and so no part of Placement's answer. Nothing is
        forgotten for a further server of a request: where it finds no room, Nova gives back what it has claimed for the
        others, and :class:`~nova_plugin.scheduler.recent.Recent` would count that for a minute.

        :param hosts: HostStates, as :meth:`able` was asked about them.
        :param spec_obj: the RequestSpec.
        """
        seen = [host for host in hosts if hasattr(host, _SEEN)]
        if any(host.num_instances > getattr(host, _SEEN).servers for host in seen):
            return False
        is_old = self.inventory.outdate(question.of(spec_obj, hosts, demand), ANEW_AFTER)
        if not demand.placement:
            is_old |= self.promises.outdate(ANEW_AFTER)
            is_old |= self.recent.outdate(hosts, ANEW_AFTER)
        if not is_old:
            return False
        for host in seen:
            delattr(host, _SEEN)
        return True

    def note(self, demand: Demand, spec_obj: Any) -> None:
        """Count a server that passed on whatever host Nova chooses for it, until that host tells of it.

        :param demand: what its flavor demands, which Placement does not count.
        :param spec_obj: the RequestSpec. For an evacuation, Nova has it ignore a host (``rebuild_instance`` of Nova's
            conductor).
        """
        may_hold = "ignore_hosts" in spec_obj and bool(spec_obj.ignore_hosts)
        self.recent.note(spec_obj.instance_uuid, Taken(demand.amount, demand.shared_class), may_hold=may_hold)

    def _look(
        self,
        hosts: Sequence[Any],
        able: Mapping[str, Provider],
        placement: bool,
        instance_uuid: str,
        coming: Coming | None = None,
    ) -> None:
        """Count on hosts that were not seen yet."""
        if not hosts:
            return
        found: Iterable[Promised] = itertools.repeat(_NONE_PROMISED, len(hosts))
        if not placement:
            if coming is None:
                coming = self.recent.by_provider(instance_uuid, hosts)
            found = self.promises.on(hosts, instance_uuid, coming)
        for host, promised in zip(hosts, found, strict=True):
            seen = Seen(host.num_instances, promised, _free(able.get(host.uuid), promised.amount))
            setattr(host, _SEEN, seen)


def _free(provider: Provider | None, promised: Amount) -> Amount | None:
    if provider is None:
        return None
    (ways, classes), (used_ways, used_classes), (own_ways, own_classes) = provider.capacity, provider.used, promised
    return Amount(
        ways - (used_ways if used_ways > own_ways else own_ways),
        classes - (used_classes if used_classes > own_classes else own_classes),
    )


def _left(host: Any, each: Amount) -> Amount | None:
    """What is free on a host that was seen, less what this very request takes there."""
    servers, _, free = getattr(host, _SEEN)
    chosen = host.num_instances - servers
    if free is None or not chosen:
        return free  # type: ignore[no-any-return]
    return Amount(free.ways - chosen * each.ways, free.classes - chosen * each.classes)


def _takes_any(provider: Provider, demand: Demand, coming: int | None) -> bool:
    """Whether the agent itself says that a server of that class can come.

    :param coming: how many classes that are not listed are on their way to the host.
    """
    return (SHARED_ROOM in provider.traits and not coming) or not provider.classes.isdisjoint(demand.taken)


def _has_class(host: Any, provider: Provider, demand: Demand, coming: int) -> bool:
    seen: Seen = getattr(host, _SEEN)
    if demand.shared_class in seen.promised.classes or host.num_instances > seen.servers:
        return True
    if SHARED_FULL in provider.traits or not provider.refused.isdisjoint(demand.taken):
        return False
    if provider.others is not None:
        return _unlisted(provider, seen.promised.classes) < provider.others
    # An older agent does not say how many classes can come: it takes any CLOSID that is left.
    return seen.free is not None and seen.free.classes > coming


def _unlisted(provider: Provider, classes: Collection[CacheRequest | None]) -> int:
    """How many of the classes the host keeps no CLOSID for."""
    found = {resources.class_resource(found) for found in classes if found is not None}
    return len(found - provider.classes - provider.refused)


@functools.cache
def of_scheduler() -> Rooms:
    """The one that the filter and the weigher of a scheduler share: Nova makes both without any argument."""
    client = report.report_client_singleton
    return Rooms(Inventory(client), Promises(promises.read_from_cell, moving=moves.read_from_cell), Recent(client))
