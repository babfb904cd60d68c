# SPDX-License-Identifier: Apache-2.0
"""When the last day of readings is read from its file, and when it is written there."""

from __future__ import annotations

import logging

from vmqos.agent.sample import minutes_file
from vmqos.agent.sample.minutes import MinuteHistory
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker

LOG = logging.getLogger(__name__)

INTERVAL = 300.0
"""Seconds between two writes: what an agent that is killed forgets at most, and what stays in memory at most beside the
last hour or two. 200 VMs take 12 MB at most; 10 MB more where hardware events are counted, and 8 MB more where packages
count."""


class MinutesKeeper:
    """Keeps a history over a restart of the agent.

    Its own thread reads all of the file and writes it: a disk that hangs holds up neither the agent's start nor a look
    at the counters. While it can't be written, what is new stays in memory.

    :param history: what is kept.
    :param path: the file; empty for none.
    """

    def __init__(self, history: MinuteHistory, path: str) -> None:
        self._history = history
        self._path = path
        self._worker = Worker("minutes")
        self._once = LogOnce(LOG)

    def start(self) -> None:
        """Read the file, and write it from now on."""
        if self._path and self._history.capacity:
            self._worker.start(self._run)

    def stop(self) -> None:
        """Write it once more."""
        self._worker.stop()

    def _run(self) -> None:
        written, ends = self._read(), False
        while not ends:
            with self._worker.condition:
                ends = self._worker.condition.wait_for(lambda: self._worker.ends, INTERVAL)
            count = self._history.count
            if count != written and self._write():
                written = count

    def _read(self) -> int:
        """Read the file; the number of minutes that it has."""
        try:
            found = minutes_file.read(self._path)
        except FileNotFoundError:
            return 0
        except (OSError, minutes_file.UnusableFile) as error:
            LOG.warning("the past in %s ([telemetry] minutes_file) is not used: %s", self._path, error)
            return 0
        self._history.restore(found)
        LOG.info("%s has %s minutes of the past", self._path, len(found.times))
        return len(found.times)

    def _write(self) -> bool:
        """Write the file; whether that went well."""
        try:
            minutes_file.write(self._path, self._history.packed())
        except OSError as error:
            self._once.log(logging.WARNING, "write", "the past can't be kept in %s: %s", self._path, error)
            return False
        self._once.end("write")
        return True
