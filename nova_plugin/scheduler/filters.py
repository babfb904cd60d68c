# SPDX-License-Identifier: Apache-2.0
"""The filter: only hosts that can keep the promise of the flavor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nova.scheduler import filters, utils
from oslo_log import log

from nova_plugin.scheduler import demand, rooms, vcpus
from nova_plugin.scheduler.demand import Amount, Demand
from nova_plugin.scheduler.placement import PlacementFailed
from nova_plugin.scheduler.rooms import Rooms
from vmqos.openstack.extra_specs import InvalidExtraSpecs
from vmqos.openstack.extra_specs.resources import L3_CAT, LLC_CLASSES, LLC_WAYS

LOG = log.getLogger(__name__)

NO_GROUP = "has no control group left"


class CacheWaysFilter(filters.BaseHostFilter, filters.CandidateFilterMixin):  # type: ignore[misc]
    """Refuses hosts that can't give a server the cache ways, or the memory bandwidth, that its flavor promises.

    Where the flavor asks Placement for what is its own (``resources:CUSTOM_LLC_WAYS`` and
    ``resources:CUSTOM_LLC_CLASSES``), Placement has counted, and the host's allocation candidates tell. Where it does
    not, the promises to the servers on the host are counted. A promise that is shared needs its class on the host, or a
    control group for it. A flavor that can't be understood fits nowhere; nor does one whose vCPUs are not as its
    promise needs them.

    What the server has on the host that it is on is not counted against it, so that it can be resized there. A rebuild
    keeps host and flavor: there is nothing to ask.
    """

    RUN_ON_REBUILD = False

    def __init__(self, counter: Rooms | None = None) -> None:
        super().__init__()
        self._rooms = rooms.of_scheduler() if counter is None else counter

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> list[Any]:
        """The hosts that pass, out of all hosts of the request: so that Placement is asked once for all of them."""
        hosts = list(filter_obj_list)
        if utils.request_is_rebuild(spec_obj):
            return hosts
        try:
            wanted = demand.of_flavor(flavor_specs(spec_obj))
            if wanted is None:
                return hosts
            vcpus.check(wanted.request, spec_obj)
            return self._passing(hosts, wanted, spec_obj.instance_uuid)
        except InvalidExtraSpecs as error:
            LOG.warning("No host can keep the promise of flavor %s: %s", spec_obj.flavor.name, error)
        except PlacementFailed as error:
            LOG.warning("No host is known to keep the promise of flavor %s: %s", spec_obj.flavor.name, error)
        return []

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        """Whether this one host passes."""
        return bool(self.filter_all([host_state], spec_obj))

    def _passing(self, hosts: Sequence[Any], wanted: Demand, instance_uuid: str) -> list[Any]:
        passing = list(hosts)
        traits = wanted.traits
        if wanted.amount.ways:
            # Who has ways to give has the trait.
            traits = traits - {L3_CAT}
        if traits:
            capable = self._rooms.inventory.capable(traits)
            lacking = f"has not all of {', '.join(sorted(traits))}"
            passing = [host for host in passing if host.uuid in capable or self._refuse(host, lacking)]
        if wanted.shared_class is not None:
            there = zip(passing, self._rooms.have_class(passing, wanted.shared_class, instance_uuid), strict=True)
            return [host for host, has_it in there if has_it or self._refuse(host, NO_GROUP)]
        if wanted.placement:
            return [host for host in passing if self._is_allowed(host, wanted.amount)]
        found = zip(passing, self._rooms.free(passing, wanted, instance_uuid), strict=True)
        return [host for host, free in found if self._fits(host, free, wanted.amount)]

    def _is_allowed(self, host: Any, amount: Amount) -> bool:
        """Whether Placement would give the server what is its own there; the candidates that don't are dropped."""
        if self.filter_candidates(host, lambda candidate: _holds(candidate, amount)):
            return True
        return self._refuse(host, f"has no allocation candidate with {_shown(amount)}")

    def _fits(self, host: Any, free: Amount | None, amount: Amount) -> bool:
        if free is None:
            return self._refuse(host, f"has no provider of cache in Placement, or one that can't give {_shown(amount)}")
        if free.ways < amount.ways:
            return self._refuse(host, f"has {max(0, free.ways)} of {amount.ways} ways")
        return free.classes >= amount.classes or self._refuse(host, NO_GROUP)

    @staticmethod
    def _refuse(host: Any, reason: str) -> bool:
        LOG.debug("%s, %s is refused: it %s", host.host, host.nodename, reason)
        return False


def flavor_specs(spec_obj: Any) -> dict[str, str]:
    """The extra specs of a RequestSpec's flavor."""
    flavor = spec_obj.flavor
    return dict(flavor.extra_specs) if flavor.obj_attr_is_set("extra_specs") else {}


def _shown(amount: Amount) -> str:
    return f"{amount.ways} ways" if amount.ways else "a control group"


def _holds(candidate: Any, amount: Amount) -> bool:
    held = [allocation["resources"] for allocation in candidate["allocations"].values()]
    ways, classes = (sum(resources.get(name, 0) for resources in held) for name in (LLC_WAYS, LLC_CLASSES))
    return bool(ways >= amount.ways and classes >= amount.classes)
