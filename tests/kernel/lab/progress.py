# SPDX-License-Identifier: Apache-2.0
"""What a person sees while parts are built: a bar for each on a terminal, a line at the end of each elsewhere."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

TOTAL = re.compile(r"(\d+) newly installed")
STAGES = (
    # mmdebstrap's and apt's and dpkg's own words, in the order in which they come.
    (re.compile(r"^I: running apt-get update", re.MULTILINE), "fetching package lists"),
    (re.compile(r"^I: downloading packages", re.MULTILINE), "fetching packages"),
    (re.compile(r"^I: extracting archives", re.MULTILINE), "unpacking"),
    (re.compile(r"^I: installing", re.MULTILINE), "installing packages"),
    (re.compile(r"^I: success", re.MULTILINE), "making the disk"),
)
STEPS = re.compile(r"^(?:Get:\d+ |Unpacking |Setting up )", re.MULTILINE)
STEPS_OF_A_PACKAGE = 3
REFRESH = 0.5
"""Seconds between two looks at the logs."""


@dataclass(frozen=True, slots=True)
class HowFar:
    """What a part's log says.

    :ivar stage: for people.
    :ivar share: of the work that is done, 0 to 1.
    """

    stage: str
    share: float


def how_far(log: str) -> HowFar:
    """Read a log of mmdebstrap as far as it is written."""
    stage = "starting"
    for pattern, name in STAGES:
        if pattern.search(log):
            stage = name
    packages = sum(int(number) for number in TOTAL.findall(log))
    if not packages:
        return HowFar(stage, 0.0)
    steps = len(STEPS.findall(log))
    return HowFar(stage, min(0.95, steps / (STEPS_OF_A_PACKAGE * packages)))


class Display:
    """Shows how far the parts are; its methods may be called from any thread.

    :param quiet: show nothing but failures.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(file=sys.stderr, highlight=False, quiet=quiet)
        self._started = time.monotonic()
        self._live: Progress | None = None
        self._tasks: dict[str, tuple[TaskID, Path]] = {}
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """A line: seconds since the start, and a text."""
        self._console.print(f"[{time.monotonic() - self._started:3.0f}s] {text}", markup=False, soft_wrap=True)

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show bars while the block runs, if there is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(30),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[stage]}"),
        )
        over = threading.Event()
        with Progress(*columns, console=self._console, transient=True) as self._live:
            watcher = threading.Thread(target=self._watch, args=(over,))
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()
        self._live = None

    @contextmanager
    def part(self, name: str, description: str, log: Path) -> Iterator[None]:
        """Show one part while the block makes it."""
        started = time.monotonic()
        if self._live is None:
            self.say(f"{name}: making {description}")
        else:
            with self._lock:
                self._tasks[name] = (self._live.add_task(name, total=1.0, stage="starting"), log)
        try:
            yield
        finally:
            with self._lock:
                task = self._tasks.pop(name, None)
                if task and self._live:
                    self._live.remove_task(task[0])
        self.say(f"{name}: made in {time.monotonic() - started:.0f} s")

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(REFRESH):
            with self._lock:
                for task, log in self._tasks.values():
                    if self._live and log.exists():
                        now = how_far(log.read_text(errors="replace"))
                        self._live.update(task, completed=now.share, stage=now.stage)
