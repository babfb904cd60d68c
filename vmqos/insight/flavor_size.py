# SPDX-License-Identifier: Apache-2.0
"""How many ways a flavor needs: what follows from the curves of several of its VMs.

A flavor promises the same to all its VMs. So it needs what the VM in most need of them needs: the greatest knee.

The curve of a VM that did other work meanwhile is not to be trusted (:mod:`vmqos.insight.size`). One such curve could
raise the number for all, so it counts only where there is no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmqos.insight.size import Size


@dataclass(frozen=True, slots=True)
class FlavorSize:
    """How many ways a flavor needs.

    :ivar knee: with so many, each of the VMs that count does nearly as well as with all that it was tried with.
    :ivar vms: how many VMs count.
    :ivar fewer: for how many of these fewer ways would do.
    :ivar is_least: whether one of these may need more.
    :ivar is_counted: whether all of these have a PMU.
    :ivar is_steady: whether the work of these stayed the same; else the number is not to be trusted.
    """

    knee: int
    vms: int
    fewer: int
    is_least: bool
    is_counted: bool
    is_steady: bool


def flavor_size(sizes: Sequence[Size]) -> FlavorSize:
    """How many ways the VMs of a flavor need.

    :param sizes: of different VMs; at least one.
    """
    counting = [one for one in sizes if one.is_steady] or sizes
    knee = max(one.knee for one in counting)
    return FlavorSize(
        knee,
        len(counting),
        # Of a VM that may need more than was tried, it is not known that fewer would do.
        sum(one.knee < knee and not one.is_least for one in counting),
        any(one.is_least for one in counting),
        all(one.is_counted for one in counting),
        all(one.is_steady for one in counting),
    )


def cost(ways: int, promised: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """How many more ways VMs take together if each is promised so many, by cache; fewer than 0 are freed.

    :param promised: how many ways each VM is promised now, by cache.
    """
    found = Counter[int]()
    for one in promised:
        found.update({cache: ways - now for cache, now in one.items()})
    return dict(sorted(found.items()))
