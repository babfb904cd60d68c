# SPDX-License-Identifier: Apache-2.0
"""The grammar of the flavor extra specs that vmqos knows, and the promise they make."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CachePolicy(enum.Enum):
    """The values of ``hw:cache_policy``."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """What a flavor's extra specs ask for; every field ``None`` where the flavor is silent.

    :ivar ways: L3 ways on every L3 the VM may run on (``hw:cache_ways``).
    :ivar policy: whether the ways are nobody else's, or a cap within the shared pool (``hw:cache_policy``).
    :ivar code_ways: L3 ways for code (``hw:cache_code_ways``), always with ``data_ways``, never with ``ways``.
    :ivar data_ways: L3 ways for data (``hw:cache_data_ways``).
    :ivar l2_ways: L2 ways (``hw:l2_cache_ways``).
    :ivar bandwidth_percent: 1 to 100 (``hw:mem_bandwidth_percent``).
    :ivar bandwidth_mbps: MB/s (``hw:mem_bandwidth_mbps``), never with ``bandwidth_percent``.
    :ivar vcpus: the vCPUs that get the ways (``hw:cache_vcpus``); all tasks of the VM where ``None``.
    """

    ways: int | None = None
    policy: CachePolicy = CachePolicy.EXCLUSIVE
    code_ways: int | None = None
    data_ways: int | None = None
    l2_ways: int | None = None
    bandwidth_percent: int | None = None
    bandwidth_mbps: int | None = None
    vcpus: frozenset[int] | None = None
