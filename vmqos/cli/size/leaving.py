# SPDX-License-Identifier: Apache-2.0
"""What a VM still finds in ways that it left, and when its misses tell of the ways that it has.

A mask says where a VM may bring lines in, and not where it may find them. Others take what a VM left in the order in
which it was used last. So there are two kinds of lines. Those that the VM uses more seldom than the others bring in as
much as these ways hold (a *turn*) are gone after one turn. Those that it uses more often stay, however long one waits:
each use makes them the last ones to be taken. ``python -m tests.worth leaving`` shows both.

So no time makes the first numbers of ways right, and none is trusted for being old. The VM's monitoring group stays
where it was and counts what is left there. It is waited while that gets less, and no longer. Numbers of ways with which
more is left than :data:`LITTLE` of what fits in them do not count: the VM lives on more than it would have. How much it
spares a VM can't be told from how much is left, for these are the lines that it uses most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LONGEST = 45.0
"""Seconds that are waited at most. A turn is far shorter where others do anything: 32 MiB of ways are turned in 45 s by
0.75 MB/s, and one VM that streams brings in ten thousand times as much."""
LOOK = 1.0
"""Seconds from one look at what is left to the next."""
FEWEST, STILL = 4, 0.02
"""What is left gets no less any more if it got less by this part of it at most within so many looks."""
LITTLE = 0.03
"""Of what fits in the ways that the VM has. Measured on 126 loads (``tests.worth``, seeds 200 000 to 200 002): so no
curve is wrong by more than 5 of 100 references; with 0.05, three were, by up to 7, and with 0.10 eight, by up to 11."""


def counts(left: float, fits: float) -> bool:
    """Whether so little is left in other ways that what a VM misses tells of the ways that it has.

    :param left: bytes in other ways; NaN where that is not known, and then it counts.
    :param fits: bytes that fit in the VM's ways.
    """
    return not left > LITTLE * fits


def is_gone(left: Sequence[float], fits: float) -> bool:
    """Whether what a VM left in other ways is gone, or waiting for it is of no use any more.

    :param left: bytes in other ways, :data:`LOOK` seconds apart, the oldest first; NaN where that is not known.
    """
    if not left or math.isnan(left[-1]):
        return False
    return left[-1] <= LITTLE * fits or (len(left) > FEWEST and left[-1] >= (1 - STILL) * left[-1 - FEWEST])
