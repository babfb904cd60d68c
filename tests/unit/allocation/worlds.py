# SPDX-License-Identifier: Apache-2.0
"""Machines, VMs and policies for the planner's tests."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from vmqos.allocation import Policy, Request, WhenFull
from vmqos.openstack.extra_specs import CachePolicy, CacheRequest
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, CacheResource, Capabilities

EXCLUSIVE, SHARED = CachePolicy.EXCLUSIVE, CachePolicy.SHARED


def uuid(number: int) -> str:
    """A VM's UUID."""
    return f"{number:08x}-1111-4222-8333-444444444444"


def request(
    number: int,
    ways: int,
    policy: CachePolicy = EXCLUSIVE,
    caches: Iterable[int] = (0,),
    arrival: int | None = None,
) -> Request:
    """One VM; it comes in the order of its number unless told."""
    wants = CacheRequest(ways=ways, policy=policy)
    return Request(uuid(number), wants, frozenset(caches), number if arrival is None else arrival)


def machine(
    ways: int = 11,
    caches: Iterable[int] = (0,),
    shareable: int = 0,
    fewest: int = 1,
    sparse: bool = False,
    closids: int = 16,
    l2: bool = False,
) -> Capabilities:
    """A machine with L3 CAT."""
    every = CapacityBitmask.run(0, ways)
    l3 = CacheResource("L3", closids, every, fewest, CapacityBitmask(shareable), sparse, tuple(caches))
    resources = {"L3": l3}
    if l2:
        resources["L2"] = CacheResource("L2", closids, every, 1, CapacityBitmask(), False, (0, 1, 2))
    return Capabilities(resources, {"MB": BandwidthResource("MB", closids, 10, 10, True, tuple(caches))})


@st.composite
def machines(draw: st.DrawFn, most_ways: int = 20, most_caches: int = 4) -> Capabilities:
    """Any machine."""
    ways = draw(st.integers(4, most_ways))
    io = draw(st.sampled_from([0, 0, 1, 2]))
    shareable = ((1 << io) - 1) << (ways - io if draw(st.booleans()) else 0)
    return machine(
        ways,
        range(draw(st.integers(1, most_caches))),
        shareable,
        draw(st.sampled_from([1, 1, 1, 2])),
        draw(st.sampled_from([False, False, False, True])),
        draw(st.integers(4, 16)),
        draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy."""
    return Policy(
        default_ways_min=draw(st.integers(1, 3)),
        use_shareable_ways=draw(st.booleans()),
        reserved_ways=CapacityBitmask(draw(st.sampled_from([0, 0, 0, 1, 0b11, 0b1000]))),
        when_full=draw(st.sampled_from(WhenFull)),
        kernel_exclusive=draw(st.booleans()),
    )
