# SPDX-License-Identifier: Apache-2.0
"""Measuring VMs for a while: by what they say, and by the counters of the cache model."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import Counts
from tests.worth.node import PATIENCE, Node, Worker

ANY_CPU = 0
"""Of the one socket there is."""
LINE = 64
"""Bytes."""
NOBODY: Mapping[str, int] = {}
GLANCE = 0.1
"""Seconds from one look at a console to the next: looking is work of the host's, which fills the cache, too."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one VM did in a window.

    :ivar accesses: that it reported.
    :ivar model: what the cache model counted.
    :ivar seconds: how long the window was.
    """

    accesses: int
    model: Counts
    seconds: float

    @property
    def miss_ratio(self) -> float:
        """Of the accesses that came as far as the L3, the part that went on to memory."""
        return self.model.l3_miss_ratio


@dataclass(frozen=True, slots=True)
class _Moment:
    accesses: int
    model: Counts
    time: float


_Watched = tuple[int, Callable[[], int]]
"""An RMID, and what tells the accesses that were reported."""


def measure(
    node: Node,
    measured: Collection[Worker],
    leaders: Collection[Worker],
    warm: int,
    accesses: int,
    beside: Mapping[str, int] = NOBODY,
) -> dict[str, Seen]:
    """Watch VMs while some of them make so many accesses.

    :param leaders: the window lasts until each of them has made its accesses.
    :param warm: their accesses before the window, in which the cache comes to what it is in this case.
    :param beside: RMIDs, by name, of others whose part in the caches is wanted, too; they report no accesses.
    :returns: what each of the measured did, and each beside them, by name.
    """
    watched: dict[str, _Watched] = {worker.vm.name: (node.rmid(worker), worker.progress) for worker in measured}
    watched |= {name: (rmid, lambda: 0) for name, rmid in beside.items()}
    _await(leaders, warm)
    before = _look(watched)
    _await(leaders, accesses)
    return _between(before, _look(watched))


def _await(leaders: Collection[Worker], accesses: int) -> None:
    goals = {worker: worker.progress() + accesses for worker in leaders}
    deadline = time.monotonic() + PATIENCE
    while late := [worker for worker, goal in goals.items() if worker.progress() < goal]:
        if time.monotonic() > deadline:
            names = ", ".join(worker.vm.name for worker in late)
            raise TimeoutError(f"not within {PATIENCE:.0f} s: {accesses} accesses of {names}")
        time.sleep(GLANCE)


def _look(watched: Mapping[str, _Watched]) -> dict[str, _Moment]:
    return {
        name: _Moment(progress(), switch.counts(ANY_CPU, rmid), time.monotonic())
        for name, (rmid, progress) in watched.items()
    }


def _between(before: dict[str, _Moment], after: dict[str, _Moment]) -> dict[str, Seen]:
    return {
        name: Seen(end.accesses - before[name].accesses, end.model - before[name].model, end.time - before[name].time)
        for name, end in after.items()
    }
