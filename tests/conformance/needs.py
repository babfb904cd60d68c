# SPDX-License-Identifier: Apache-2.0
"""What a case needs of a machine or of a kernel; where that is not so, there is nothing to ask and no item is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.differences import Difference
from vmqos.simulator.hardware.profiles import CacheAllocation, Profile

Need = Callable[[Profile], bool]

MACHINE = "needs"
"""The mark whose arguments are functions of type :data:`Need`. They are asked of machines, whatever their kernel."""

KERNEL = "needs_kernel"
"""The mark with a :class:`.Difference`, and whether the kernel has to do it the newer way."""


def of(need: Need) -> pytest.MarkDecorator:
    """A need of any kind of a machine."""
    # Called with a function, a mark would take it for what is to be marked.
    return pytest.mark.needs.with_args(need)


def _percent_steps(profile: Profile) -> int:
    """Per cent from one limit of bandwidth to the next; 0 where there are none, or in another unit."""
    return profile.bandwidth.granularity if profile.bandwidth is not None and profile.bandwidth.linear else 0


def caches_of(profile: Profile) -> list[CacheAllocation]:
    """The caches whose ways can be allocated, the L3 first."""
    return [cache for cache in (profile.l3, profile.l2) if cache is not None]


BANDWIDTH = of(lambda profile: profile.bandwidth is not None)
NO_BANDWIDTH = of(lambda profile: profile.bandwidth is None)
INTEL_BANDWIDTH = of(lambda profile: _percent_steps(profile) > 1)
ARM_BANDWIDTH = of(lambda profile: _percent_steps(profile) == 1)
AMD_BANDWIDTH = of(lambda profile: profile.bandwidth is not None and not profile.bandwidth.linear)
BANDWIDTH_CONTROLLER = of(lambda profile: bool(profile.bandwidth and profile.bandwidth.linear and profile.monitoring))
L3_AND_BANDWIDTH = of(lambda profile: bool(profile.l3 and profile.bandwidth))
COUNTS_IN_UNITS = of(lambda profile: profile.monitoring is not None and profile.monitoring.scale > 1)
MONITORING = of(lambda profile: profile.monitoring is not None)
SLOW_BANDWIDTH = of(lambda profile: profile.slow_bandwidth is not None)
IO_ALLOC = of(lambda profile: profile.l3 is not None and profile.l3.io_alloc)
CONFIGURABLE_EVENTS = of(lambda profile: bool(profile.monitoring and profile.monitoring.configurable))
NO_CONFIGURABLE_EVENTS = of(lambda profile: bool(profile.monitoring and not profile.monitoring.configurable))
PACKAGE_EVENTS = of(lambda profile: profile.packages is not None)
SUB_NUMA_NODES = of(lambda profile: profile.topology.nodes_per_l3 > 1)
PSEUDO_LOCK = of(lambda profile: profile.pseudo_lock)
NO_PSEUDO_LOCK = of(lambda profile: not profile.pseudo_lock)
CDP = of(lambda profile: profile.l3 is not None and profile.l3.cdp)
CDP_EVERYWHERE = of(lambda profile: all(cache.cdp for cache in caches_of(profile)))
SHAREABLE_BITS_EVERYWHERE = of(lambda profile: all(cache.shareable_bits for cache in caches_of(profile)))
WAYS_WITHOUT_DEVICES = of(
    lambda profile: all(cache.shareable_bits != (1 << cache.ways) - 1 for cache in caches_of(profile))
)
NO_EMPTY_MASKS = of(lambda profile: all(cache.min_cbm_bits for cache in caches_of(profile)))
EMPTY_MASKS = of(lambda profile: any(not cache.min_cbm_bits for cache in caches_of(profile)))


def kernel_with(difference: Difference) -> pytest.MarkDecorator:
    """A kernel that does it the newer way."""
    return pytest.mark.needs_kernel(difference, True)


def kernel_without(difference: Difference) -> pytest.MarkDecorator:
    """A kernel that does it the older way."""
    return pytest.mark.needs_kernel(difference, False)
