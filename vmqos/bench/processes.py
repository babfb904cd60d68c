# SPDX-License-Identifier: Apache-2.0
"""Starting the loads, talking to them, and ending them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from vmqos.bench import exceptions

SCRIPT = Path(__file__).with_name("load.py")
START_TIMEOUT = 120.0
"""Seconds until a load is ready: to link a large working set takes an emulated processor a while."""
PATIENCE = 30.0
"""Seconds beyond those asked for until a load has answered."""


class Load:
    """A process of :mod:`vmqos.bench.load`; it is killed when this process ends, whichever way.

    :param what: what it is, for messages.
    :param cpus: the CPUs that it may use.
    :param arguments: the kind of load and what that one needs.
    """

    def __init__(self, what: str, cpus: Collection[int], *arguments: str) -> None:
        self.what = what
        # It must see none of the site's packages: their import takes longer than all the rest.
        command = [sys.executable, "-I", "-S", str(SCRIPT), str(os.getpid()), ",".join(map(str, sorted(cpus)))]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=tempfile.gettempdir(),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its PID, which is its only task's id until it is told to go."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Return once it can start.

        :raises vmqos.bench.exceptions.LoadFailed: if it can't.
        """
        answer = self._read(START_TIMEOUT)
        if answer != "ready":
            raise exceptions.LoadFailed(what=self.what, problem=answer.removeprefix("error ") or self._last_words())

    def tell(self, line: str) -> None:
        """Send a line.

        :raises vmqos.bench.exceptions.LoadFailed: if it has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except OSError as error:
            raise exceptions.LoadFailed(what=self.what, problem=self._last_words()) from error

    def ask(self, seconds: float) -> float:
        """Have the victim work so long.

        :returns: nanoseconds an access took.
        :raises vmqos.bench.exceptions.LoadFailed: if it has ended, or does not answer.
        """
        self.tell(str(seconds))
        done, taken = map(int, self._read(seconds + PATIENCE).split())
        return taken / done

    def wait_until_done(self) -> None:
        """Return when the program that it turned into has ended well.

        :raises vmqos.bench.exceptions.LoadFailed: if it ends with another status than 0.
        """
        # What it says is of no interest, but it would wait for ever once its output is not read.
        assert self._process.stdout is not None
        while self._process.stdout.read1(65536):  # type: ignore[attr-defined]
            pass
        if self._process.wait():
            raise exceptions.LoadFailed(what=self.what, problem=self._last_words())

    def check(self) -> None:
        """Do nothing while it runs.

        :raises vmqos.bench.exceptions.LoadFailed: if it has ended.
        """
        if self._process.poll() is not None:
            raise exceptions.LoadFailed(what=self.what, problem=self._last_words())

    def end(self) -> None:
        """Kill it with all that it started, and wait for its end."""
        # A program that it turned into may have processes of its own; they are in its session's only group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _read(self, timeout: float) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            raise exceptions.LoadFailed(what=self.what, problem=f"it did not answer within {timeout:.0f} s")
        answer = self._process.stdout.readline().decode().strip()
        if not answer:
            raise exceptions.LoadFailed(what=self.what, problem=self._last_words())
        return answer

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        status = self._process.returncode
        return f"it ended with status {status}" + (f": {words[-1]}" if words else "")


def start(loads: Sequence[Load]) -> None:
    """Wait until all of them are ready, then have them go."""
    for load in loads:
        load.wait_until_ready()
    for load in loads:
        load.tell("go")
