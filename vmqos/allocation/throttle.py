# SPDX-License-Identifier: Apache-2.0
"""Memory bandwidth: what a request for it comes to on this machine, and what a limit is called by.

A limit takes nothing from other groups, so there is nothing to place: it is a plain value of a group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vmqos.allocation import reasons
from vmqos.extra_specs import CacheRequest
from vmqos.reason import NO_REASON, Reason
from vmqos.resctrl.capabilities import EIGHTH_GBPS_IN_MBPS, BandwidthResource, BandwidthUnit, Capabilities

"""1/8 GB/s in MB/s."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """What a VM gets of the memory bandwidth.

    :ivar value: its limit, as schemata says it; ``None`` where it gets none.
    :ivar fault: why it does not get what it asks for; empty where it does.
    :ivar remark: what it gets instead of exactly that; empty where it is exactly that.
    """

    value: int | None = None
    fault: Reason = NO_REASON
    remark: Reason = NO_REASON


def read(capabilities: Capabilities, wants: CacheRequest) -> Throttle:
    """What a request's bandwidth comes to: rounded up to what the hardware can do.

    Per cent are no measure where the hardware counts in 1/8 GB/s: its greatest value stands for no limit, whatever the
    memory can do, so there is nothing to take per cent of. Nor are they where resctrl is mounted with ``mba_MBps``.
    """
    percent, mbps = wants.bandwidth_percent, wants.bandwidth_mbps
    if percent is None and mbps is None:
        return Throttle()
    resource = capabilities.memory_bandwidth
    if resource is None:
        return Throttle(fault=reasons.NO_BANDWIDTH)
    match resource.unit:
        case BandwidthUnit.PERCENT if percent is not None:
            value = min(_rounded(resource, percent), resource.unit.unlimited)
            remark = reasons.percent_raised(percent, value, resource) if value != percent else NO_REASON
            return Throttle(value, remark=remark)
        case BandwidthUnit.MBPS if mbps is not None:
            return Throttle(mbps)
        case BandwidthUnit.EIGHTH_GBPS if mbps is not None:
            value = min(_rounded(resource, -(-mbps // EIGHTH_GBPS_IN_MBPS)), resource.unit.unlimited)
            real = resource.unit.told(value)
            return Throttle(value, remark=reasons.mbps_changed(mbps, real) if real != mbps else NO_REASON)
        case BandwidthUnit.PERCENT:
            return Throttle(fault=reasons.no_mbps(capabilities))
        case BandwidthUnit.MBPS:
            return Throttle(fault=reasons.NO_PERCENT)
        case BandwidthUnit.EIGHTH_GBPS:
            return Throttle(fault=reasons.NO_PERCENT_OF_GBPS)


def with_limit(grants: CacheRequest, resource: BandwidthResource | None, value: int | None) -> CacheRequest:
    """What a class grants besides this limit of memory bandwidth, and the limit itself.

    :param value: the limit, in the unit of schemata; ``None`` for none.
    """
    if resource is None or value is None:
        return grants
    if resource.unit is BandwidthUnit.PERCENT:
        return replace(grants, bandwidth_percent=value)
    return replace(grants, bandwidth_mbps=resource.unit.told(value))


def _rounded(resource: BandwidthResource, value: int) -> int:
    """Up to the next step, as the kernel does it (``bw_validate`` in its resctrl)."""
    step = max(1, resource.bandwidth_gran)
    return max(resource.min_bandwidth, -(-value // step) * step)
