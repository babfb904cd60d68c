# SPDX-License-Identifier: Apache-2.0
"""The features that depend on the hardware, and what a machine has to have for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vmqos.simulator.hardware.profiles import Profile


@dataclass(frozen=True, slots=True)
class Feature:
    """One row of the matrix.

    :ivar name: as tests are marked with it.
    :ivar title: as readers see it.
    :ivar shown: what a test shows that is marked with it.
    :ivar needs: what a machine needs for it, in words.
    :ivar is_on: whether a machine with its kernel has that.
    """

    name: str
    title: str
    shown: str
    needs: str
    is_on: Callable[[Profile], bool]


def _gives_percent(profile: Profile) -> bool:
    return profile.bandwidth is not None and profile.bandwidth.linear


_EVERY = (
    Feature(
        "ways",
        "L3 ways",
        "``hw:cache_ways``, exclusive and shared, for all tasks of a VM",
        "L3 CAT",
        lambda profile: profile.l3 is not None,
    ),
    Feature(
        "cdp",
        "Ways for code and data",
        "``hw:cache_code_ways`` and ``hw:cache_data_ways``, where resctrl is mounted with ``cdp``",
        "CDP of the L3",
        lambda profile: profile.l3 is not None and profile.l3.cdp,
    ),
    Feature(
        "l2",
        "L2 ways",
        "``hw:l2_cache_ways`` for pinned VMs, mounted with ``cdpl2`` or not",
        "L2 CAT",
        lambda profile: profile.l2 is not None,
    ),
    Feature(
        "percent",
        "Bandwidth in per cent",
        "``hw:mem_bandwidth_percent``, in the hardware's steps",
        "MBA by per cent",
        _gives_percent,
    ),
    Feature(
        "mba_MBps",
        "Bandwidth in MB/s",
        "``hw:mem_bandwidth_mbps``, where resctrl is mounted with ``mba_MBps``",
        "MBA by per cent, and counters of bandwidth",
        lambda profile: _gives_percent(profile) and profile.monitoring is not None,
    ),
    Feature(
        "gbps",
        "Bandwidth in 1/8 GB/s",
        "``hw:mem_bandwidth_mbps`` in AMD's steps",
        "AMD's MBA",
        lambda profile: profile.bandwidth is not None and not profile.bandwidth.linear,
    ),
    Feature(
        "smba",
        "Slow memory",
        "limits of the bandwidth of slow memory stay as the operator set them",
        "AMD's SMBA",
        lambda profile: profile.slow_bandwidth is not None,
    ),
    Feature(
        "io_alloc",
        "Ways for devices",
        "ways that devices are confined to are no VM's, and their class is gone",
        "AMD's SDCIAE, and Linux 6.19 (``io_alloc``)",
        lambda profile: profile.l3 is not None and profile.l3.io_alloc and profile.kernel.has_io_alloc,
    ),
    Feature(
        "gaps",
        "Gaps and empty masks",
        "others' masks that have gaps, or no bit at all",
        "an L3 whose masks may be sparse and empty",
        lambda profile: profile.l3 is not None and profile.l3.sparse and not profile.l3.min_cbm_bits,
    ),
    Feature(
        "caches",
        "Many L3 caches",
        "a VM pays on those alone that it can run on, of more than two",
        "more than two L3 caches",
        lambda profile: profile.l3 is not None and len(profile.topology.l3) > 2,
    ),
    Feature(
        "total",
        "No local bandwidth",
        "what a machine does not count is told as not counted",
        "counters of the total bandwidth alone (Arm's MPAM)",
        lambda profile: profile.monitoring is not None and "mbm_local_bytes" not in profile.monitoring.events,
    ),
    Feature(
        "vcpus",
        "Some vCPUs alone",
        "``hw:cache_vcpus``: the threads of these vCPUs, also of those plugged in, and no others",
        "L3 CAT",
        lambda profile: profile.l3 is not None,
    ),
    Feature(
        "confined",
        "Confined VMs",
        "a VM that is pinned pays there alone; two on two sockets have the same ways",
        "L3 CAT, and two L3 caches",
        lambda profile: profile.l3 is not None and len(profile.topology.l3) > 1,
    ),
    Feature(
        "lock",
        "Pseudo-locking",
        "``vmqos lock``, and that locked ways are no VM's; in guests to a device that can be mapped, also by a VM",
        "a processor whose prefetchers Linux can switch off",
        lambda profile: profile.pseudo_lock,
    ),
    Feature(
        "capabilities",
        "Capabilities",
        "``vmqos capabilities``; in guests compared with ``pqos -D`` and ``-s``",
        "resctrl",
        lambda profile: profile.can_allocate,
    ),
    Feature(
        "neighbor",
        "Noisy neighbour",
        "``vmqos bench noisy-neighbor`` lends the victim ways and gives them back; of no machine here do the figures "
        "mean anything",
        "L3 CAT",
        lambda profile: profile.l3 is not None,
    ),
)
FEATURES: Mapping[str, Feature] = MappingProxyType({feature.name: feature for feature in _EVERY})
"""Every feature by name, in the order of the matrix."""
