# SPDX-License-Identifier: Apache-2.0
"""The last looks at the counters, as insight judges by them: each cache for itself, and counts as they are.

Of each VM, that is what its run of now did: a VM that was stopped and started is another program on another cache.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from vmqos.agent.sample.history import Columns, History
from vmqos.agent.sample.swept import Column, Swept
from vmqos.agent.vm_record import VmRecord
from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process
from vmqos.telemetry.hardware_events import NAMES
from vmqos.telemetry.model import LLC_OCCUPANCY

MOST = 120
"""Samples of each VM: four minutes at the usual interval. Each takes 4 bytes for the bandwidth, 4 for the CPU time, 4
for each cache, and 16 where hardware events are counted: 4 kB a VM on two caches, 14 kB on 24."""

BANDWIDTH = "bandwidth"
CPU_TIME = "cpu_time"
"""What the series is called that has the CPU seconds a second that a VM's QEMU process ran."""


class RecentSamples:
    """The last :data:`MOST` regular sweeps; every method may be called from any thread.

    :param interval: seconds between two of them; with 0 there are none, and nothing is remembered.
    :param counted: whether hardware events are counted.
    :param vms: the VMs by UUID, as the last pass left them.
    :ivar interval: see above.
    :ivar counted: see above.
    """

    def __init__(
        self, interval: float, *, counted: bool, vms: Callable[[], Mapping[str, VmRecord]] = lambda: {}
    ) -> None:
        self.interval = interval
        self.counted = counted
        self._vms = vms
        self._processes: Mapping[str, Process] = {}
        """The VMs' QEMU processes at the last sweep that are known, by UUID."""
        self._known: tuple[Mapping[str, VmRecord], Sequence[str]] = {}, ()
        """What these follow from: as long as it is the same, no VM was started again."""
        self._ran: Mapping[str, tuple[Process, float, int]] = {}
        """Each VM's process, when its CPU time was read last (monotonic), and the nanoseconds, by UUID."""
        self._lock = threading.Lock()
        self._history: History | None = None
        self._caches: tuple[int, ...] = ()

    def add(self, sweep: Swept, counts: Mapping[str, Sequence[float]]) -> None:
        """Remember one sweep.

        :param counts: what the VMs' tasks did a second, by UUID and :data:`vmqos.telemetry.hardware_events.NAMES`.
        """
        if not self.interval:
            return
        if self._history is None or sweep.caches != self._caches:
            # A cache went offline, or came: what was held before can't be laid beside what is held now.
            series = (BANDWIDTH, CPU_TIME, *(NAMES if self.counted else ()), *map(held_on, sweep.caches))
            with self._lock:
                self._history, self._caches = History(MOST, series), sweep.caches
        vms = self._vms()
        columns = sweep.total, self._cpu_time(sweep.uuids, vms), *self._executed(sweep.uuids, counts), *sweep.held
        samples = dict(zip(sweep.uuids, zip(*columns, strict=True), strict=True))
        if vms is not self._known[0] or sweep.uuids != self._known[1]:
            for uuid in self._started_again(sweep.uuids, vms):
                # What was counted since the sweep before may be of both runs. With it, all before is forgotten, too.
                del samples[uuid]
            running = {uuid: vms[uuid].observed.vm.process for uuid in sweep.uuids if uuid in vms}
            self._processes = {uuid: self._processes[uuid] for uuid in sweep.uuids if uuid in self._processes} | running
            self._known = vms, sweep.uuids
        self._history.add(sweep.when, samples)

    def _started_again(self, uuids: Iterable[str], vms: Mapping[str, VmRecord]) -> list[str]:
        """Those of these VMs whose QEMU is another process than at the last sweep."""
        known = self._processes
        return [
            uuid for uuid in uuids if uuid in vms and uuid in known and vms[uuid].observed.vm.process != known[uuid]
        ]

    def _cpu_time(self, uuids: Iterable[str], vms: Mapping[str, VmRecord]) -> Column:
        """CPU seconds a second since the sweep before; ``None`` of a process that was not there then."""
        before, now, found = self._ran, dict[str, tuple[Process, float, int]](), list[float | None]()
        for uuid in uuids:
            ran = None
            if uuid in vms:
                process = vms[uuid].observed.vm.process
                now[uuid] = process, time.monotonic(), processes.cpu_time_of_all(process.pid)
                earlier, since, nanoseconds = before.get(uuid, (None, 0.0, 0))
                # One that has ended has run for 0.
                if earlier == process and 0 < nanoseconds <= now[uuid][2] and since < now[uuid][1]:
                    ran = (now[uuid][2] - nanoseconds) / 1e9 / (now[uuid][1] - since)
            found.append(ran)
        self._ran = now
        return found

    def _executed(self, uuids: Sequence[str], counts: Mapping[str, Sequence[float]]) -> Sequence[Column]:
        if not self.counted:
            return ()
        missing = (None,) * len(NAMES)
        return list(zip(*(counts.get(uuid, missing) for uuid in uuids), strict=True)) or [()] * len(NAMES)

    def columns(self, when: float = 0.0) -> tuple[Columns, tuple[int, ...]]:
        """What was read at ``when`` (seconds since 1970) and later, and of which caches (:func:`held_on`)."""
        with self._lock:
            history, caches = self._history, self._caches
        if history is None:
            return Columns([], {}), caches
        read = history.columns(when)
        if earlier := set(self._started_again(read.vms, self._vms())):
            read = Columns(read.times, {uuid: of for uuid, of in read.vms.items() if uuid not in earlier})
        return read, caches


def held_on(cache: int) -> str:
    """What the series is called that has the bytes held on a cache."""
    return f"{LLC_OCCUPANCY} {cache}"
