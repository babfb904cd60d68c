# SPDX-License-Identifier: Apache-2.0
"""What stories with real processes choose from, and how: a number chooses, so that a seed tells all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

POLICIES: tuple[Mapping[str, object], ...] = (
    {"kernel_exclusive": True, "default_ways_min": 2},
    {"kernel_exclusive": False, "default_ways_min": 2},
    {"kernel_exclusive": True, "default_ways_min": 3},
)
"""Options of ``[allocation]`` that an agent is told when it reads its configuration."""

_T = TypeVar("_T")


def choose(items: Sequence[_T], number: int) -> _T | None:
    """One of these; ``None`` where there is none."""
    return items[number % len(items)] if items else None
