# SPDX-License-Identifier: Apache-2.0
"""What Placement is asked beside Nova's own question: of those hosts alone that the server could be placed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nova.scheduler import utils

from nova_plugin.scheduler.demand import Demand

_ANY_HOSTS = ("group", "same_host", "different_host")
"""The scheduler hints with which Nova asks for all candidates (``resources_from_request_spec``)."""


def of(spec_obj: Any, hosts: Sequence[Any], demand: Demand) -> str:
    """The query for allocation candidates, as for ``GET /allocation_candidates``.

    It is Nova's own question (``nova.scheduler.utils.resources_from_request_spec``): the flavor's sizes, the traits,
    the aggregates. So its answer grows with the hosts that the server fits on, not with the cloud. Where the flavor
    does not ask for ways or a control group of the server's own, they are added.

    Nova has Placement cut its answer at ``[scheduler] max_placement_results``. So does this query where the answer is
    for the weigher alone. Where the filter needs it, nothing is cut: what is cut need not be the same hosts.

    :param spec_obj: the RequestSpec.
    :param hosts: the HostStates under consideration.
    """
    asked = utils.ResourceRequest.from_request_spec(spec_obj)
    group = asked.get_request_group(None)
    if not demand.placement and demand.shared_class is None:
        group.resources.update(demand.taken)
    if asked.cpu_pinning_requested:
        # Nova asks a second time, for VCPU instead, for hosts that have no PCPU.
        group.resources.pop("PCPU", None)
    destination = spec_obj.requested_destination if "requested_destination" in spec_obj else None
    if destination is not None and destination.aggregates:
        group.aggregates = [either.split(",") for either in destination.aggregates]
    if destination is not None and destination.forbidden_aggregates:
        group.forbidden_aggregates |= destination.forbidden_aggregates
    hints = spec_obj.scheduler_hints if "scheduler_hints" in spec_obj else {}
    if len(hosts) == 1:
        group.in_tree = hosts[0].uuid
    if not demand.settled or any(hint in hints for hint in _ANY_HOSTS):
        asked._limit = None
    # Placement refuses a group that takes nothing: the flavor may take all from numbered groups.
    asked.strip_zeros()
    if asked.get_num_of_suffixed_groups() >= 2 and not asked.group_policy:
        asked.group_policy = "none"
    return str(asked.to_querystring())
