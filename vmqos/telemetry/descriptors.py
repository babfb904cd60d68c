# SPDX-License-Identifier: Apache-2.0
"""How many files may be kept open."""

from __future__ import annotations

import resource

SPARE = 256
"""Descriptors that are left for everything else the process does."""


def raise_limit() -> int:
    """Raise this process's soft limit of open files to the hard one; how many files may be kept open then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    return max(0, soft - SPARE) if soft != resource.RLIM_INFINITY else 1 << 20
