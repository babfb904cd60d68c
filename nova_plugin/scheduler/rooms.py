# SPDX-License-Identifier: Apache-2.0
"""How much room hosts have for servers of a flavor."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nova.scheduler.client import report

from nova_plugin.scheduler import promises, question
from nova_plugin.scheduler.demand import Amount, Demand
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.placement import Provider
from nova_plugin.scheduler.promises import Promised, Promises
from vmqos.extra_specs import CacheRequest
from vmqos.extra_specs.resources import SHARED_FULL, SHARED_ROOM

_GROUP = Amount(classes=1)
_NONE_PROMISED = Promised()
_SEEN = "vmqos_seen"
"""The attribute of a HostState that keeps what was counted; Nova makes HostStates anew for each request."""


class Seen(NamedTuple):
    """A host as it was before the scheduler chose it for any server of the request.

    :ivar servers: how many there were on it; the HostState counts on with each server that it is chosen for.
    :ivar promised: what was promised to them.
    """

    servers: int
    promised: Promised


@dataclass(frozen=True, slots=True)
class Rooms:
    """Counts what is free.

    :ivar inventory: what the hosts have.
    :ivar promises: what their servers were promised.
    """

    inventory: Inventory
    promises: Promises

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

        Where the flavor asks Placement, what Placement allocated is taken. Where it does not, it is what the servers
        there were promised, or what Placement allocated if that is more: a server that is about to come is in
        Placement first. Either way less what this very request takes already.

        :param hosts: HostStates.
        :param spec_obj: the RequestSpec.
        :param able: what :meth:`able` found, if it was asked already.
        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told what the hosts have.
        """
        if able is None:
            able = self.able(hosts, demand, spec_obj)
        self._look([host for host in hosts if host.uuid in able], demand.placement, spec_obj.instance_uuid)
        each = demand.amount
        return [_free(host, able.get(host.uuid), each) for host in hosts]

    def have_class(
        self, hosts: Sequence[Any], demand: Demand, able: Mapping[str, Provider], instance_uuid: str
    ) -> list[bool]:
        """Whether each host has the shared class of a flavor that does not ask Placement for it, or can make it.

        A host has it that keeps a CLOSID for it, or where a server is in it, the one that is to be placed included, or
        that this very request has chosen. The databases are asked for the servers only where nothing else helps.

        :param hosts: HostStates.
        :param able: what :meth:`able` found of them.
        :param instance_uuid: the server that is to be placed.
        """
        sure = [_takes_any(able[host.uuid], demand) for host in hosts]
        self._look([host for host, has in zip(hosts, sure, strict=True) if not has], False, instance_uuid)
        return [
            has or _has_class(host, able[host.uuid], demand.shared_class) for host, has in zip(hosts, sure, strict=True)
        ]

    def _look(self, hosts: Sequence[Any], placement: bool, instance_uuid: str) -> None:
        unseen = [host for host in hosts if not hasattr(host, _SEEN)]
        if placement:
            # One object for all hosts with as many servers: hosts are many.
            nothing = {servers: Seen(servers, _NONE_PROMISED) for servers in {host.num_instances for host in unseen}}
            for host in unseen:
                setattr(host, _SEEN, nothing[host.num_instances])
            return
        for host, promised in zip(unseen, self.promises.on(unseen, without=instance_uuid), strict=True):
            setattr(host, _SEEN, Seen(host.num_instances, promised))


def _free(host: Any, provider: Provider | None, each: Amount) -> Amount | None:
    if provider is None:
        return None
    seen: Seen = getattr(host, _SEEN)
    chosen = host.num_instances - seen.servers
    promised = seen.promised.amount
    capacity, used = provider.capacity, provider.used
    return Amount(
        capacity.ways - max(used.ways, promised.ways) - chosen * each.ways,
        capacity.classes - max(used.classes, promised.classes) - chosen * each.classes,
    )


def _takes_any(provider: Provider, demand: Demand) -> bool:
    """Whether the agent itself says that a server of that class can come."""
    return SHARED_ROOM in provider.traits or not provider.classes.isdisjoint(demand.taken)


def _has_class(host: Any, provider: Provider, shared_class: CacheRequest | None) -> bool:
    seen: Seen = getattr(host, _SEEN)
    if shared_class in seen.promised.classes or host.num_instances > seen.servers:
        return True
    # An older agent does not say how many classes can come: it takes any CLOSID that is left.
    free = _free(host, provider, _GROUP)
    return SHARED_FULL not in provider.traits and free is not None and free.classes > 0


@functools.cache
def of_scheduler() -> Rooms:
    """The one that the filter and the weigher of a scheduler share: Nova makes both without any argument."""
    return Rooms(Inventory(report.report_client_singleton), Promises(promises.read_from_cell))
