# SPDX-License-Identifier: Apache-2.0
"""The VMs that libvirt is starting: word of them before libvirt itself says so.

libvirt sends its event when the guest runs already, and answers no question about a VM while it starts it. But its
status file of the VM (:mod:`vmqos.hypervisor.run_files`) is there in time, and the kernel tells of each change.
What is missed here costs nothing but time: libvirt's event comes anyway.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vmqos.daemon.directory_watch import DirectoryWatch, EventsLost, FileEvent
from vmqos.daemon.log_once import LogOnce
from vmqos.daemon.worker import Worker
from vmqos.hypervisor import exceptions, processes, run_files
from vmqos.hypervisor.model import Process
from vmqos.hypervisor.run_files import DomainStatus
from vmqos.resctrl.exceptions import ResctrlError

LOG = logging.getLogger(__name__)

RETRY = 5.0
"""Seconds until a directory that can't be watched is tried again: libvirt makes it when it is started first."""

_SUFFIX = ".xml"


@dataclass(frozen=True, slots=True)
class StartingVm:
    """A VM that libvirt is starting.

    :ivar file: the name of its status file, without what it ends with.
    :ivar status: what the file says.
    :ivar process: its QEMU process, which may not be QEMU's program yet; ``None`` before it is forked.
    """

    file: str
    status: DomainStatus
    process: Process | None


class StartWatch:
    """Watches libvirt's run directory from a thread of its own.

    :param run_dir: libvirt's run directory.
    :param on_start: called with the VMs that libvirt is starting, again when there is more to know of one; returns the
        files of those of which no more need be known.
    :param on_end: called with the file of a VM that has ended, or whose start has failed.
    :ivar is_watching: whether the directory is watched now; ``None`` where that was not asked for.
    :ivar last_error: why it can't be watched; empty where it is, and before the first try.
    """

    def __init__(
        self, run_dir: str, on_start: Callable[[Sequence[StartingVm]], set[str]], on_end: Callable[[str], None]
    ) -> None:
        self._run_dir = run_dir
        self._on_start = on_start
        self._on_end = on_end
        self.is_watching: bool | None = None
        self.last_error = ""
        self._worker = Worker("libvirt-status")
        self._watch: DirectoryWatch | None = None
        self._settled: set[str] = set()
        """The files that need not be read again until their VM has ended: libvirt writes one at each change."""
        self._begun: set[str] = set()
        """The files of the starts that were told of, and of whose ends were not."""
        self._once = LogOnce(LOG)

    def start(self) -> None:
        """Begin to watch; a directory that is not there yet is no error."""
        self.is_watching = False
        self._worker.start(self._run)

    def close(self) -> None:
        """End the thread."""
        with self._worker.condition:
            self._worker.ends = True
            if self._watch is not None:
                self._watch.wake()
        self._worker.stop()

    def _run(self) -> None:
        while not self._worker.ends:
            try:
                self._follow()
            except EventsLost:
                self._once.log(logging.INFO, "lost", "not all is known of %s: it is watched anew", self._run_dir)
            except OSError as error:
                self._wait_after(logging.INFO, error.strerror or str(error))
            except Exception as error:
                # Whatever it is, the next VM's start must be watched all the same.
                self._wait_after(logging.ERROR, str(error), error)

    def _wait_after(self, level: int, why: str, error: Exception | None = None) -> None:
        """Tell why the directory can't be watched, and wait until it is tried again."""
        self.last_error = f"{self._run_dir} can't be watched: {why}"
        self._once.log(level, "watch", "%s", self.last_error, error=error)
        with self._worker.condition:
            self._worker.condition.wait_for(lambda: self._worker.ends, RETRY)

    def _follow(self) -> None:
        watch = DirectoryWatch(self._run_dir)
        try:
            # The VMs whose files are there already are libvirt's to tell of.
            self._settled = {name.removesuffix(_SUFFIX) for name in os.listdir(self._run_dir)}
            # Where events were lost, nobody has told of these ends.
            for file in self._begun - self._settled:
                self._end(file)
            self._once.end("watch")
            self.is_watching, self.last_error = True, ""
            with self._worker.condition:
                self._watch = watch
            while not self._worker.ends:
                self._take(watch.wait())
        finally:
            self.is_watching = False
            with self._worker.condition:
                self._watch = None
            watch.close()

    def _take(self, events: Sequence[FileEvent]) -> None:
        """Act on what happened to files, all at once: where many VMs start, one plan does for all of them."""
        changed = dict[str, None]()
        for event in events:
            file = event.name.removesuffix(_SUFFIX)
            if file == event.name:
                continue
            if event.is_gone:
                changed.pop(file, None)
                self._settled.discard(file)
                self._end(file)
            elif file not in self._settled:
                changed[file] = None
        found = [starting for starting in map(self._read, changed) if starting is not None]
        if found:
            self._begun.update(starting.file for starting in found)
            self._guarded(lambda: self._settled.update(self._on_start(found)))

    def _end(self, file: str) -> None:
        self._begun.discard(file)
        self._guarded(functools.partial(self._on_end, file))

    def _read(self, file: str) -> StartingVm | None:
        """The VM of a status file, if libvirt is starting it."""
        status = run_files.read_status(os.path.join(self._run_dir, file + _SUFFIX))
        if status is None:
            return None
        if not status.is_starting:
            self._settled.add(file)
            return None
        try:
            return StartingVm(file, status, processes.of_pid(status.pid) if status.pid else None)
        except exceptions.HypervisorError:
            return None

    def _guarded(self, act: Callable[[], None]) -> None:
        """Act, and log what goes wrong: the next VM's start must be watched all the same."""
        try:
            act()
            self._once.end("act")
        except ResctrlError as error:
            # Such as a lock that another program holds: the next pass does what is left.
            self._once.log(logging.WARNING, "act", "a VM's start is not acted on early: %s", error)
        except Exception as error:
            self._once.log(logging.ERROR, "act", "a VM's start is not acted on early: %s", error, error=error)
