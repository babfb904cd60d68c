# SPDX-License-Identifier: Apache-2.0
"""What the agent makes known beside the counters: plain values for :mod:`vmqos.gateway.exposition`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VmState:
    """How one VM stands.

    :ivar name: its name in Nova; the libvirt name where there is none.
    :ivar project: the UUID of its project; empty where it is not known.
    :ivar flavor: the name of its flavor; empty where it is not known.
    :ivar state: ``kept``, ``pending``, ``degraded`` or ``none``.
    :ivar reason: one of a fixed set of words; empty where there is nothing to explain.
    :ivar ways: how many ways its promise gives it, by cache id.
    :ivar l2_ways: how many L2 ways its promise gives it, by cache id.
    :ivar bandwidth: the limits of memory bandwidth that its promise gives it, by cache id.
    :ivar bandwidth_is_ratio: whether these are shares of all bandwidth, 0 to 1; else they are bytes a second.
    """

    uuid: str
    name: str
    project: str
    flavor: str
    state: str
    reason: str
    ways: Mapping[int, int] = field(default_factory=dict)
    bandwidth: Mapping[int, float] = field(default_factory=dict)
    bandwidth_is_ratio: bool = True
    l2_ways: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheState:
    """One L3 of the host.

    :ivar ways: how many it has.
    :ivar size: bytes; ``None`` where the kernel does not say.
    :ivar free_ways: how many can still be promised.
    :ivar largest_free_run: how many of them in one piece.
    """

    ways: int
    size: int | None
    free_ways: int
    largest_free_run: int


@dataclass(frozen=True, slots=True)
class Durations:
    """A histogram.

    :ivar buckets: upper bounds in seconds, in ascending order, with the number of samples up to each.
    :ivar count: the number of all samples.
    :ivar total: their sum in seconds.
    """

    buckets: tuple[tuple[float, int], ...] = ()
    count: int = 0
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class AgentState:
    """All that the agent publishes.

    :ivar version: the agent's.
    :ivar resctrl: whether resctrl could be read in the last pass.
    :ivar libvirt: whether libvirt is connected and answers.
    :ivar vms: the host's VMs by UUID.
    :ivar caches: the L3s that can be partitioned, by cache id.
    :ivar groups: how many control groups each kind of owner has.
    :ivar closids: how many control groups there can be; 0 while resctrl can't be read.
    :ivar closids_used: how many there are.
    :ivar rmids: how many groups of both kinds can be monitored; 0 where nothing is monitored.
    :ivar rmids_used: how many groups there are.
    :ivar placement: whether OpenStack has what it is to be told of this host; ``None`` where it is told nothing.
    :ivar inventories: what it was told last, by resource class.
    :ivar placement_failures: how often it could not be told.
    :ivar nova: whether Nova tells flavors; ``None`` where it is not asked.
    :ivar flavors_unknown: how many VMs' flavors Nova is still to tell.
    :ivar passes: how long the passes of the loop took.
    :ivar failed_passes: how many of them failed.
    :ivar ages: seconds since the last complete look at the VMs (``vms``), the last pass that ended well (``pass``) and
        the last sweep (``counters``); since the agent's start before the first of each.
    :ivar unserved: how many VMs libvirt lists that the agent does not serve yet.
    """

    version: str
    resctrl: bool = False
    libvirt: bool = False
    vms: Mapping[str, VmState] = field(default_factory=dict)
    caches: Mapping[int, CacheState] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    closids: int = 0
    closids_used: int = 0
    rmids: int = 0
    rmids_used: int = 0
    placement: bool | None = None
    inventories: Mapping[str, int] = field(default_factory=dict)
    placement_failures: int = 0
    nova: bool | None = None
    flavors_unknown: int = 0
    passes: Durations = field(default_factory=Durations)
    failed_passes: int = 0
    ages: Mapping[str, float] = field(default_factory=dict)
    unserved: int = 0
