# SPDX-License-Identifier: Apache-2.0
"""The last looks at the counters, as insight judges by them: each cache for itself, and counts as they are."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from vmqos.agent.sample.history import Columns, History, Sample
from vmqos.telemetry import Growth, Rates, Snapshot, VmReading
from vmqos.telemetry.hardware_events import NAMES
from vmqos.telemetry.model import LLC_OCCUPANCY

MOST = 120
"""Samples of each VM: four minutes at the usual interval. Each takes 8 bytes for the bandwidth, 8 for each cache, and
32 where hardware events are counted: 7 kB a VM on two caches, 28 kB on 24."""

BANDWIDTH = "bandwidth"


class RecentSamples:
    """The last :data:`MOST` regular sweeps; every method may be called from any thread.

    :param interval: seconds between two of them; with 0 there are none, and nothing is remembered.
    :param counted: whether hardware events are counted.
    :ivar interval: see above.
    :ivar counted: see above.
    """

    def __init__(self, interval: float, *, counted: bool) -> None:
        self.interval = interval
        self.counted = counted
        self._lock = threading.Lock()
        self._history: History | None = None
        self._caches: tuple[int, ...] = ()

    def add(
        self,
        now: Snapshot,
        found: Mapping[str, Rates],
        counts: Mapping[str, Sequence[float]],
        grown: Growth | None = None,
    ) -> None:
        """Remember one sweep.

        :param found: the bandwidths since the sweep before, by UUID.
        :param counts: what the VMs' tasks did a second, by UUID and :data:`vmqos.telemetry.hardware_events.NAMES`.
        :param grown: what ``found`` tells, as columns, where the sweep has such.
        """
        if not self.interval:
            return
        caches = tuple(sorted(now.host.caches))
        if self._history is None or caches != self._caches:
            # A cache went offline, or came: what was held before can't be laid beside what is held now.
            series = (BANDWIDTH, *(NAMES if self.counted else ()), *map(held_on, caches))
            with self._lock:
                self._history, self._caches = History(MOST, series), caches
        missing = (None,) * len(NAMES) if self.counted else ()
        bandwidth: Iterable[float | None]
        held: Iterable[Sample]
        if grown is not None and now.columns is not None:
            uuids, bandwidth = grown.uuids, grown.total
            held = zip(*(now.columns.caches[cache][0] for cache in caches), strict=True)
        else:
            uuids, bandwidth = list(now.vms), (found[uuid].total.value for uuid in now.vms)
            held = (_on(vm, caches) for vm in now.vms.values())
        executed = [counts.get(uuid, missing) if self.counted else missing for uuid in uuids]
        samples = zip(uuids, bandwidth, executed, held, strict=True)
        self._history.add(now.wall, {uuid: (moved, *done, *bytes_held) for uuid, moved, done, bytes_held in samples})

    def columns(self, when: float = 0.0) -> tuple[Columns, tuple[int, ...]]:
        """What was read at ``when`` (seconds since 1970) and later, and of which caches (:func:`held_on`)."""
        with self._lock:
            history, caches = self._history, self._caches
        return (Columns([], {}) if history is None else history.columns(when)), caches


def held_on(cache: int) -> str:
    """What the series is called that has the bytes held on a cache."""
    return f"{LLC_OCCUPANCY} {cache}"


def _on(vm: VmReading, caches: Sequence[int]) -> Sample:
    return tuple(vm.caches[cache][LLC_OCCUPANCY].value if cache in vm.caches else None for cache in caches)
