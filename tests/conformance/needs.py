# SPDX-License-Identifier: Apache-2.0
"""What a case needs of a machine; where that is not so, there is nothing to ask and no item is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.differences import Difference
from vmqos.simulator.profiles import CacheAllocation, Profile

Need = Callable[[Profile], bool]

MARK = "needs"
"""The mark's name; its arguments are functions of type :data:`Need`."""


def of(need: Need) -> pytest.MarkDecorator:
    """A need of any kind."""
    return pytest.mark.needs(need)


L3 = of(lambda profile: profile.l3 is not None)
L2 = of(lambda profile: profile.l2 is not None)
BANDWIDTH = of(lambda profile: profile.bandwidth is not None)
NO_BANDWIDTH = of(lambda profile: profile.bandwidth is None)
INTEL_BANDWIDTH = of(lambda profile: profile.bandwidth is not None and profile.bandwidth.linear)
AMD_BANDWIDTH = of(lambda profile: profile.bandwidth is not None and not profile.bandwidth.linear)
MONITORING = of(lambda profile: profile.monitoring is not None)
NO_MONITORING = of(lambda profile: profile.monitoring is None)
CONFIGURABLE_EVENTS = of(lambda profile: profile.monitoring is not None and bool(profile.monitoring.configurable))
PSEUDO_LOCK = of(lambda profile: profile.pseudo_lock)
NO_PSEUDO_LOCK = of(lambda profile: not profile.pseudo_lock)
CDP = of(lambda profile: profile.l3 is not None and profile.l3.cdp)
CDPL2 = of(lambda profile: profile.l2 is not None and profile.l2.cdp)
SHAREABLE_BITS = of(lambda profile: any(cache.shareable_bits for cache in caches_of(profile)))


def kernel_with(difference: Difference) -> pytest.MarkDecorator:
    """A kernel that does it the newer way."""
    return of(lambda profile: difference.is_in(profile.kernel.version))


def kernel_without(difference: Difference) -> pytest.MarkDecorator:
    """A kernel that does it the older way."""
    return of(lambda profile: not difference.is_in(profile.kernel.version))


def caches_of(profile: Profile) -> list[CacheAllocation]:
    """The caches whose ways can be allocated, the L3 first."""
    return [cache for cache in (profile.l3, profile.l2) if cache is not None]
