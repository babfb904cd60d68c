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
from vmqos.extra_specs import InvalidExtraSpecs

LOG = log.getLogger(__name__)

NO_GROUP = "has no control group left"


class CacheWaysFilter(filters.BaseHostFilter):  # type: ignore[misc]
    """Refuses hosts that can't give a server the cache ways, or the memory bandwidth, that its flavor promises.

    Where the flavor asks Placement for what its promise takes (``resources:CUSTOM_LLC_WAYS``,
    ``resources:CUSTOM_LLC_CLASSES``, or the resource class of its shared class), and for the traits, Placement has
    counted: the host's allocation candidates tell, and nothing else is asked. Where it does not, the promises to the
    servers on the host are counted, and a shared promise needs its class on the host, or room for one more. A flavor
    that can't be understood fits nowhere; nor does one whose vCPUs are not as its promise needs them.

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
            return self._passing(hosts, wanted, spec_obj)
        except InvalidExtraSpecs as error:
            LOG.warning("No host can keep the promise of flavor %s: %s", spec_obj.flavor.name, error)
        except PlacementFailed as error:
            LOG.warning("No host is known to keep the promise of flavor %s: %s", spec_obj.flavor.name, error)
        return []

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        """Whether this one host passes."""
        return bool(self.filter_all([host_state], spec_obj))

    def _passing(self, hosts: Sequence[Any], wanted: Demand, spec_obj: Any) -> list[Any]:
        passing = list(hosts)
        if wanted.placement:
            taken = list(wanted.taken.items())
            without = f"has no allocation candidate with {_shown(wanted)}"
            passing = [host for host in passing if _keep_candidates(host, taken) or self._refuse(host, without)]
        if wanted.settled:
            return passing
        found = self._with_room(passing, wanted, spec_obj)
        if passing and not found and self._rooms.outdate(passing, wanted, spec_obj):
            # Room that became free a moment ago is not in what is used again for a while.
            found = self._with_room(passing, wanted, spec_obj)
        if found and not wanted.placement:
            self._rooms.note(wanted, spec_obj)
        return found

    def _with_room(self, passing: list[Any], wanted: Demand, spec_obj: Any) -> list[Any]:
        """Those of the hosts that have the traits, and room where Placement did not count."""
        able = self._rooms.able(passing, wanted, spec_obj)
        if wanted.traits:
            lacking = f"has not all of {', '.join(sorted(wanted.traits))}"
            passing = [host for host in passing if host.uuid in able or self._refuse(host, lacking)]
        if wanted.placement:
            return passing
        if wanted.shared_class is not None:
            there = self._rooms.have_class(passing, wanted, able, spec_obj.instance_uuid)
            passing = [host for host, has in zip(passing, there, strict=True) if has or self._refuse(host, NO_GROUP)]
        else:
            found = zip(passing, self._rooms.free(passing, wanted, spec_obj, able), strict=True)
            ways, classes = wanted.amount
            passing = [
                host
                for host, free in found
                if (free is not None and free.ways >= ways and free.classes >= classes)
                or self._refuse(host, _lacking(free, wanted))
            ]
        return passing

    @staticmethod
    def _refuse(host: Any, reason: str) -> bool:
        LOG.debug("%s, %s is refused: it %s", host.host, host.nodename, reason)
        return False


def flavor_specs(spec_obj: Any) -> dict[str, str]:
    """The extra specs of a RequestSpec's flavor."""
    return dict(demand.specs_of(spec_obj.flavor))


def _lacking(free: Amount | None, wanted: Demand) -> str:
    """Why a host has too little."""
    if free is None:
        return f"has no provider of cache in Placement, or one that can't give {_shown(wanted)}"
    if free.ways < wanted.amount.ways:
        return f"has {max(0, free.ways)} of {wanted.amount.ways} ways"
    return NO_GROUP


def _shown(wanted: Demand) -> str:
    if wanted.shared_class is not None:
        return "the shared class"
    return f"{wanted.amount.ways} ways" if wanted.amount.ways else "a control group"


def _keep_candidates(host: Any, taken: Sequence[tuple[str, int]]) -> bool:
    """Drop the host's allocation candidates that have less; whether one is left.

    Nova's ``CandidateFilterMixin`` does that too, and makes two lines for the log of each candidate, whether there is
    a log or not: they cost more than all the rest of the filter.
    """
    found = host.allocation_candidates
    kept = [candidate for candidate in found if _holds(candidate, taken)]
    if len(kept) < len(found):
        host.allocation_candidates = kept
    return bool(kept)


def _holds(candidate: Any, taken: Sequence[tuple[str, int]]) -> bool:
    held = candidate["allocations"].values()
    for name, amount in taken:
        lacking = amount
        for allocation in held:
            lacking -= allocation["resources"].get(name, 0)
        if lacking > 0:
            return False
    return True
