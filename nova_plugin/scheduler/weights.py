# SPDX-License-Identifier: Apache-2.0
"""The weigher: spread the servers that have ways of their own, or pack them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nova.conf
from nova.scheduler import utils, weights
from oslo_log import log

from nova_plugin.scheduler import demand, options, rooms
from nova_plugin.scheduler.filters import flavor_specs
from nova_plugin.scheduler.placement import PlacementFailed
from nova_plugin.scheduler.rooms import Rooms
from vmqos.extra_specs import InvalidExtraSpecs

LOG = log.getLogger(__name__)

CONF = nova.conf.CONF
options.register(CONF)


class CacheWaysWeigher(weights.BaseHostWeigher):  # type: ignore[misc]
    """Weighs hosts by the L3 ways that can be promised there yet, if the flavor asks for exclusive ones.

    Free ways in number are free ways in one piece, because the agent moves masks together. More free ways weigh more,
    so that a positive ``cache_ways_weight_multiplier`` spreads and a negative one packs. For other flavors all hosts
    weigh the same.
    """

    minval = 0

    def __init__(self, counter: Rooms | None = None) -> None:
        super().__init__()
        self._rooms = rooms.of_scheduler() if counter is None else counter
        self._multiplier = float(CONF.filter_scheduler.cache_ways_weight_multiplier)

    def weight_multiplier(self, host_state: Any) -> float:
        """The option's value, or that of the host's aggregates."""
        if not host_state.aggregates:
            return self._multiplier
        return float(utils.get_weight_multiplier(host_state, "cache_ways_weight_multiplier", self._multiplier))

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """The weights of all hosts of the request: so that Placement is asked once for all of them.

        :param weight_properties: the RequestSpec.
        """
        # Nova asks for the multiplier of each host after this, and to read an option costs more than all the rest.
        self._multiplier = float(CONF.filter_scheduler.cache_ways_weight_multiplier)
        return self._weigh([weighed.obj for weighed in weighed_obj_list], weight_properties)

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        return self._weigh([obj], weight_properties)[0]

    def _weigh(self, hosts: Sequence[Any], spec_obj: Any) -> list[float]:
        try:
            wanted = demand.of_flavor(flavor_specs(spec_obj))
            if wanted is not None and wanted.amount.ways:
                found = self._rooms.free(hosts, wanted, spec_obj)
                return [0.0 if free is None else float(max(0, free.ways)) for free in found]
        except (InvalidExtraSpecs, PlacementFailed) as error:
            LOG.debug("All hosts weigh the same: %s", error)
        return [0.0] * len(hosts)
