# SPDX-License-Identifier: Apache-2.0
"""Reading counters beside the loop: at an interval of its own, and whenever somebody asks for fresh ones."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from oslo_config import cfg

from vmqos.agent.history import History, Past, Sample
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.telemetry import Rates, Snapshot, Sweeper, VmReading, rates
from vmqos.telemetry.exceptions import SweepFailed
from vmqos.telemetry.model import LLC_OCCUPANCY

LOG = logging.getLogger(__name__)

LET_GO_INTERVAL = 5.0
"""Seconds between two looks at whether resctrl is still mounted, where counters are read more seldom than that."""


class Telemetry:
    """The host's counters; every method may be called from any thread.

    :param root: the root of resctrl.
    :param interval: seconds between two looks; 0: only when somebody asks.
    :param history: seconds that are remembered.
    :param keep_open: see :class:`vmqos.telemetry.Sweeper`; nothing is kept open where nobody looks regularly.
    """

    def __init__(self, root: str, interval: float, history: float, keep_open: bool = True) -> None:
        self.interval = interval
        self._sweeper = Sweeper(root, keep_open and interval > 0)
        self._sweeping = threading.Lock()
        self._newest: Snapshot | None = None
        self._sampling = threading.Lock()
        self._sampled: tuple[Snapshot, Mapping[str, Rates]] | None = None
        self._error: ResctrlError | None = None
        self._history = History(int(history / interval) + 1 if interval > 0 and history > 0 else 0)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Telemetry:
        """As the configuration says."""
        section = conf.telemetry
        return cls(conf.resctrl.path, section.interval, section.history, section.keep_open)

    def start(self) -> None:
        """Look at every interval from now on, where there is one."""
        if self.interval > 0:
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop looking, and close every file."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)
        with self._sweeping:
            self._sweeper.close()

    def newest(self, max_age: float) -> Snapshot:
        """A sweep that is at most ``max_age`` seconds old; callers at the same time share one.

        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        with self._sweeping:
            newest = self._newest
            if newest is None or time.monotonic() - newest.monotonic > max_age:
                self._newest = None
                newest = self._newest = self._sweeper.sweep()
            return newest

    def sampled(self, max_age: float) -> tuple[Snapshot, Mapping[str, Rates]]:
        """The last regular look, with the bandwidths since the one before it.

        :param max_age: seconds; how old it may be where nobody looks regularly. The bandwidths then are those since
            somebody asked before.
        :raises vmqos.resctrl.exceptions.ResctrlError: if resctrl can't be read.
        """
        if self._error is not None:
            raise self._error
        if self._thread is None or self._sampled is None:
            return self._sample(self.newest(max_age))
        return self._sampled

    def past(self, seconds: float, uuids: frozenset[str] | None = None) -> Past:
        """What the regular looks of the last ``seconds`` found, of all VMs or these."""
        return self._history.since(time.time() - seconds, uuids)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._look()
            due = max(due + self.interval, time.monotonic())
            self._wait_until(due)

    def _look(self) -> None:
        try:
            self._sample(self.newest(0.0))
        except ResctrlError as error:
            failure = error
        except Exception as error:
            # Whatever it is, the next look may be better, and nobody else looks.
            LOG.exception("a look at the counters failed")
            failure = SweepFailed(cause=error)
        else:
            if self._error is not None:
                LOG.info("counters can be read again")
            self._error = None
            return
        if str(failure) != str(self._error):
            LOG.warning("counters can't be read: %s", failure)
        self._error, self._sampled = failure, None

    def _wait_until(self, due: float) -> None:
        while (left := due - time.monotonic()) > 0 and not self._stop.wait(min(left, LET_GO_INTERVAL)):
            if left > LET_GO_INTERVAL:
                with self._sweeping:
                    self._sweeper.let_go_if_unmounted()

    def _sample(self, now: Snapshot) -> tuple[Snapshot, Mapping[str, Rates]]:
        with self._sampling:
            if self._sampled is None or self._sampled[0] is not now:
                before = now if self._sampled is None else self._sampled[0]
                found = rates(before, now)
                self._history.add(now.wall, {uuid: _remembered(vm, found[uuid]) for uuid, vm in now.vms.items()})
                self._sampled = now, found
            return self._sampled


def _remembered(vm: VmReading, found: Rates) -> Sample:
    return vm.totals[LLC_OCCUPANCY].value, found.total.value, found.local.value, found.remote.value
