# SPDX-License-Identifier: Apache-2.0
"""Time, weighed from counts: an emulated processor's own time says nothing of a real one's.

The weights are round figures of a server of 2020; only the order of results is taken from them.
"""

from __future__ import annotations

from tests.kernel.cachemodel.counts import Counts

INSTRUCTION_NS = 0.25
L3_NS = 20.0
MEMORY_NS = 90.0


def nanoseconds(counts: Counts) -> float:
    """How long what was counted would take, if nothing overlapped."""
    lines = counts.data + counts.fetch
    return counts.instructions * INSTRUCTION_NS + lines.l3 * L3_NS + lines.memory * MEMORY_NS


def per_access(counts: Counts, accesses: int) -> float:
    """Nanoseconds of each of a VM's own accesses, or of each byte that it compresses.

    :raises ValueError: if it made none.
    """
    if not accesses:
        raise ValueError("the VM reported no access in the window")
    return nanoseconds(counts) / accesses
