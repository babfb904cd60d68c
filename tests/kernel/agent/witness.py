# SPDX-License-Identifier: Apache-2.0
"""Stands between whoever changes resctrl and resctrl: sees each write before it is made, and may look, meddle or kill.

The kernel has the opener of a file wait for us (fanotify). So at that moment all earlier writes are done and this one
is not: between any two of them the registers are looked at, and a process that is killed then dies exactly there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.kernel.agent.fanotify import Event, Watch


@dataclass(frozen=True, slots=True)
class Step:
    """A write that is about to be made, or was made.

    :ivar pid: the process that makes it; 0 if it made the write and has ended since.
    :ivar path: the file, relative to resctrl's root.
    """

    pid: int
    path: str


Look = Callable[[Step], None]
"""Called before each write of others, while the writer waits, or after it."""


@dataclass
class Witness:
    """Watches one mount at a time, from a thread of its own.

    Our own process, the test, is not watched.

    :ivar look: called before each write, see :data:`Look`; ``None`` for none.
    :ivar after: called after each write, and before the writer's next one; ``None`` for none.
    :ivar steps: every write that others were about to make so far.
    :ivar written: every write that others have made so far.
    :ivar made: the files that they wrote to, each with when the write was seen: seconds since boot, a moment late.
    :ivar failures: what :attr:`look` and :attr:`after` raised.
    """

    look: Look | None = None
    after: Look | None = None
    steps: list[Step] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    made: list[tuple[str, float]] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    _root: Path = Path("/")
    _watch: Watch = field(default_factory=Watch)
    _looker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "witness"))

    def __post_init__(self) -> None:
        threading.Thread(target=self._serve, name="fanotify", daemon=True).start()

    def watch(self, root: Path) -> None:
        """Watch this mount of resctrl, until it is unmounted."""
        self._root = root
        self._watch.mark(root)

    def _serve(self) -> None:
        # What the looker itself opens waits for us, too: so it is another thread.
        while True:
            for event in self._watch.read():
                pid = event.pid
                if pid == os.getpid():
                    self._watch.allow(event)
                elif not event.opens:
                    self.written.append(f"{pid} {event.path}")
                    self.made.append((self._path(event), time.clock_gettime(time.CLOCK_BOOTTIME)))
                    self._looker.submit(self._call, self.after, Step(pid, self._path(event)))
                    self._watch.allow(event)
                elif event.for_writing:
                    self._looker.submit(self._before, event, pid)
                else:
                    self._watch.allow(event)

    def _before(self, event: Event, pid: int) -> None:
        step = Step(pid, self._path(event))
        self.steps.append(step)
        try:
            self._call(self.look, step)
        finally:
            self._watch.allow(event)

    def _call(self, look: Look | None, step: Step) -> None:
        try:
            if look is not None:
                look(step)
        except BaseException as error:
            self.failures.append(error)

    def _path(self, event: Event) -> str:
        return str(event.path.relative_to(self._root))


@dataclass
class KillingWitness:
    """Kills whoever changes resctrl, before one of its writes.

    :ivar deaths: the writes that were never made.
    """

    witness: Witness
    deaths: list[Step] = field(default_factory=list)
    _left: int = 0
    _before: Look | None = None

    def arm(self, changes: int) -> None:
        """Kill the next writer before its write of that number, 1 or more."""
        self._left = changes
        self._before, self.witness.look = self.witness.look, self._kill

    def disarm(self) -> None:
        """Kill nobody any more."""
        self.witness.look = self._before

    def _kill(self, step: Step) -> None:
        if self._before is not None:
            self._before(step)
        self._left -= 1
        if self._left == 0:
            os.kill(step.pid, signal.SIGKILL)
            self.deaths.append(step)
