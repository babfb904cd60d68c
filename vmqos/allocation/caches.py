# SPDX-License-Identifier: Apache-2.0
"""What caches are called here: an L3 by the id that the kernel gives it, an L2 with the id *n* by ``~n``.

The ids of both levels begin at 0. So that one number names one cache, and whatever is known by cache can be known of
both levels at once, those of L2 are turned below 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def l2(cache_id: int) -> int:
    """What the L2 of that id is called."""
    return ~cache_id


def level(cache: int) -> int:
    """The level of a cache: 2 or 3."""
    return 2 if cache < 0 else 3


def id_of(cache: int) -> int:
    """The id that the kernel gives a cache."""
    return ~cache if cache < 0 else cache


def of_level(wanted: int, values: Mapping[int, T]) -> dict[int, T]:
    """What is known of the caches of one level, by the kernel's ids."""
    return {id_of(cache): value for cache, value in sorted(values.items()) if level(cache) == wanted}


def among(wanted: int, caches: Iterable[int]) -> frozenset[int]:
    """Those of the caches that are of one level."""
    return frozenset(cache for cache in caches if level(cache) == wanted)
