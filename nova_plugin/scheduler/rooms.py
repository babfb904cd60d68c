# SPDX-License-Identifier: Apache-2.0
"""How much room hosts have for servers of a flavor."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova.scheduler.client import report

from nova_plugin.scheduler import promises
from nova_plugin.scheduler.demand import Amount, Demand
from nova_plugin.scheduler.inventory import Inventory
from nova_plugin.scheduler.placement import Stock
from nova_plugin.scheduler.promises import Promised, Promises
from vmqos.openstack.extra_specs import CacheRequest

_GROUP = Amount(classes=1)
_SEEN = "vmqos_seen"
"""The attribute of a HostState that keeps what was counted; Nova makes HostStates anew for each request."""


@dataclass(frozen=True, slots=True)
class Seen:
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

    def free(self, hosts: Sequence[Any], demand: Demand, instance_uuid: str) -> list[Amount | None]:
        """What can be promised on each host yet; ``None`` where Placement would not allocate what the flavor demands.

        Where the flavor asks Placement, what Placement allocated is taken. Where it does not, it is what the servers
        there were promised, or what Placement allocated if that is more: a server that is about to come is in
        Placement first. Either way less what this very request takes already.

        :param hosts: HostStates.
        :param instance_uuid: the server that is to be placed.
        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told what the hosts have.
        """
        stocks = self.inventory.stocks(demand.amount)
        self._look([host for host in hosts if host.uuid in stocks], demand.placement, instance_uuid)
        return [_free(host, stocks.get(host.uuid), demand.amount) for host in hosts]

    def have_class(self, hosts: Sequence[Any], shared_class: CacheRequest, instance_uuid: str) -> list[bool]:
        """Whether each host has that class already, or a control group left for it.

        A class is there if a server on the host is in it, the one that is to be placed included, or if this very
        request has chosen the host.

        :param hosts: HostStates.
        :param instance_uuid: the server that is to be placed.
        :raises nova_plugin.scheduler.placement.PlacementFailed: if Placement never told what the hosts have.
        """
        stocks = self.inventory.stocks(_GROUP)
        self._look(hosts, False, instance_uuid)
        return [_has_class(host, stocks.get(host.uuid), shared_class) for host in hosts]

    def _look(self, hosts: Sequence[Any], placement: bool, instance_uuid: str) -> None:
        unseen = [host for host in hosts if not hasattr(host, _SEEN)]
        taken = [Promised()] * len(unseen) if placement else self.promises.on(unseen, without=instance_uuid)
        for host, promised in zip(unseen, taken, strict=True):
            setattr(host, _SEEN, Seen(host.num_instances, promised))


def _free(host: Any, stock: Stock | None, each: Amount) -> Amount | None:
    if stock is None:
        return None
    seen: Seen = getattr(host, _SEEN)
    chosen = host.num_instances - seen.servers
    promised = seen.promised.amount
    return Amount(
        stock.capacity.ways - max(stock.used.ways, promised.ways) - chosen * each.ways,
        stock.capacity.classes - max(stock.used.classes, promised.classes) - chosen * each.classes,
    )


def _has_class(host: Any, stock: Stock | None, shared_class: CacheRequest) -> bool:
    seen: Seen = getattr(host, _SEEN)
    if shared_class in seen.promised.classes or host.num_instances > seen.servers:
        return True
    free = _free(host, stock, _GROUP)
    return free is not None and free.classes > 0


@functools.cache
def of_scheduler() -> Rooms:
    """The one that the filter and the weigher of a scheduler share: Nova makes both without any argument."""
    return Rooms(Inventory(report.report_client_singleton), Promises(promises.read_from_cell))
