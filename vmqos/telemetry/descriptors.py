# SPDX-License-Identifier: Apache-2.0
"""How many files may be kept open."""

from __future__ import annotations

import resource

SPARE = 256
"""Descriptors that are left for everything else the process does, at the least."""

SPARE_PART = 8
"""One of so many descriptors is left where that is more. The agent has one for each VM's process, up to 128 for clients
and up to 64 connections to libvirt of some descriptors each. On a host with hundreds of VMs that is more than 256, and
where none is left, no pass can read anything."""


def raise_limit() -> int:
    """Raise this process's soft limit of open files to the hard one; how many files may be kept open then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    return max(0, soft - max(SPARE, soft // SPARE_PART)) if soft != resource.RLIM_INFINITY else 1 << 20
