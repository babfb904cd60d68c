# SPDX-License-Identifier: Apache-2.0
"""The inputs, one module a family."""

from __future__ import annotations

from tests.campaign.hostile.families import (
    cgroups,
    http,
    locks,
    metadata,
    mounts,
    names,
    neighbours,
    processes,
    signals,
)
from tests.campaign.hostile.inputs import Family

_MODULES = (signals, metadata, names, cgroups, mounts, processes, http, neighbours, locks)

FAMILIES: tuple[Family, ...] = tuple(module.FAMILY for module in _MODULES)

MODULES = tuple(module.__name__ for module in _MODULES)
"""What the processes of accounts are forked with."""
