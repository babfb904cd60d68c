# SPDX-License-Identifier: Apache-2.0
"""Machines, VMs and policies for the planner's tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from vmqos.allocation import Policy, Request, WhenFull
from vmqos.extra_specs import CachePolicy, CacheRequest
from vmqos.resctrl.bitmask import CapacityBitmask
from vmqos.resctrl.capabilities import BandwidthResource, BandwidthUnit, CacheResource, Capabilities

EXCLUSIVE, SHARED = CachePolicy.EXCLUSIVE, CachePolicy.SHARED


def uuid(number: int) -> str:
    """A VM's UUID."""
    return f"{number:08x}-1111-4222-8333-444444444444"


def request(
    number: int,
    ways: int | None = None,
    policy: CachePolicy = EXCLUSIVE,
    caches: Iterable[int] = (0,),
    arrival: int | None = None,
    percent: int | None = None,
    mbps: int | None = None,
    parts: tuple[int, int] | None = None,
    l2: int | None = None,
    cores: Iterable[int] = (),
) -> Request:
    """One VM; it comes in the order of its number unless told.

    :param cores: the ids of the L2s that it is pinned to.
    """
    code, data = parts or (None, None)
    wants = CacheRequest(ways, policy, code, data, l2, percent, mbps)
    return Request(
        uuid(number), wants, frozenset((*caches, *(~core for core in cores))), number if arrival is None else arrival
    )


def machine(
    ways: int = 11,
    caches: Iterable[int] = (0,),
    shareable: int = 0,
    fewest: int = 1,
    sparse: bool = False,
    closids: int = 16,
    l2: bool = False,
    unit: BandwidthUnit = BandwidthUnit.PERCENT,
    cdp: bool = False,
    cdpl2: bool = False,
) -> Capabilities:
    """A machine with L3 CAT."""
    every = CapacityBitmask.run(0, ways)
    l3 = CacheResource("L3", closids, every, fewest, CapacityBitmask(shareable), sparse, tuple(caches))
    resources = {name: replace(l3, name=name) for name in (("L3CODE", "L3DATA") if cdp else ("L3",))}
    if l2:
        small = CacheResource("L2", closids, CapacityBitmask.run(0, 8), 1, CapacityBitmask(), False, (0, 1, 2))
        resources |= {name: replace(small, name=name) for name in (("L2CODE", "L2DATA") if cdpl2 else ("L2",))}
    bandwidth = BandwidthResource("MB", closids, 10, 10, True, tuple(caches), unit)
    if unit is BandwidthUnit.EIGHTH_GBPS:
        bandwidth = replace(bandwidth, min_bandwidth=0, bandwidth_gran=1, delay_linear=False)
    return Capabilities(resources, {"MB": bandwidth})


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
        draw(st.sampled_from(BandwidthUnit)),
        draw(st.sampled_from([False, False, True])),
        draw(st.booleans()),
    )


@st.composite
def promises(draw: st.DrawFn, most_ways: int) -> CacheRequest:
    """Anything that a flavor may ask for."""
    ways = draw(st.integers(1, most_ways))
    kind = draw(st.sampled_from(["", "", "", "percent", "mbps"]))
    percent = draw(st.sampled_from([1, 10, 25, 50, 100])) if kind == "percent" else None
    mbps = draw(st.sampled_from([1, 125, 1000, 300000])) if kind == "mbps" else None
    alone = bool(kind) and draw(st.booleans())
    policy = EXCLUSIVE if alone else draw(st.sampled_from([EXCLUSIVE, EXCLUSIVE, SHARED]))
    code = draw(st.integers(0, 3)) if ways > 1 and not alone else 0
    l2 = draw(st.sampled_from([None, None, 1, 3, 9]))
    if 0 < code < ways:
        return CacheRequest(None, policy, code, ways - code, l2, percent, mbps)
    return CacheRequest(None if alone else ways, policy, None, None, l2, percent, mbps)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy."""
    return Policy(
        default_ways_min=draw(st.integers(1, 3)),
        use_shareable_ways=draw(st.booleans()),
        reserved_ways=CapacityBitmask(draw(st.sampled_from([0, 0, 0, 1, 0b11, 0b1000]))),
        when_full=draw(st.sampled_from(WhenFull)),
        kernel_exclusive=draw(st.booleans()),
        shared_classes=draw(st.sampled_from([(), (), (CacheRequest(2, SHARED), CacheRequest(bandwidth_percent=50))])),
        other_classes=draw(st.sampled_from([None, None, 0, 1, 2])),
    )
