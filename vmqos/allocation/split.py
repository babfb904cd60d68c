# SPDX-License-Identifier: Apache-2.0
"""Code and data: which of a group's ways are filled by the one and which by the other, where resctrl is mounted so.

The planner places the ways of both as one mask. So what keeps masks apart keeps code apart from others' data, too, and
where a mask lies is decided without regard to its parts.
"""

from __future__ import annotations

from vmqos.allocation.cache_ways import take
from vmqos.allocation.model import Split
from vmqos.resctrl.bitmask import CapacityBitmask


def split(ways: int, code: int = 0, data: int = 0) -> Split:
    """Divide a mask: code has the lowest ways, data has the others.

    Neither has fewer than asked for, as far as there are so many; where there are too few, they have ways in common.

    :param ways: the mask of both.
    :param code: how many ways are for code; 0 where both fill all of them.
    :param data: how many ways are for data.
    """
    if not code:
        return Split(CapacityBitmask(ways), CapacityBitmask(ways))
    count = ways.bit_count()
    lower = min(code, count)
    common = max(0, lower + min(data, count) - count)
    upper = ways & ~take(ways, lower - common)
    return Split(CapacityBitmask(take(ways, lower)), CapacityBitmask(upper))
