# SPDX-License-Identifier: Apache-2.0
"""Freed RMIDs that come back, also on machines where the kernel would keep them for ever."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from vmqos.resctrl.filesystem import Filesystem

THRESHOLD = "info/L3_MON/max_threshold_occupancy"
COUNTER_UNIT = 65536
"""Bytes in which the lab's processors count (CPUID.0xF.1:EBX)."""


def let_end(filesystem: Filesystem) -> None:
    """Raise the threshold where it is 0.

    The kernel divides the size of what it takes for the last cache (the L2 on AMD) by the number of RMIDs and rounds
    down to the counters' unit (``resctrl_rmid_realloc_threshold``): that can be 0, below which no occupancy is.
    """
    if not os.path.exists(filesystem.path(THRESHOLD)):
        return  # No RMIDs, no limbo.
    if int(filesystem.read(THRESHOLD)) == 0:
        filesystem.write(THRESHOLD, str(COUNTER_UNIT))


@contextlib.contextmanager
def that_ends(filesystem: Filesystem) -> Iterator[None]:
    """The same for a while; the threshold is left as it was, for no mount resets it."""
    before = filesystem.read(THRESHOLD)
    let_end(filesystem)
    yield
    filesystem.write(THRESHOLD, before)
