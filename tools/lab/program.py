# SPDX-License-Identifier: Apache-2.0
"""Starting one of the project's programs as a process of its own."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import multiprocessing.context
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tools.lab.workspace import CHECKOUT


class Program(Protocol):
    """A process, as :class:`subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """Its PID."""
        ...

    def poll(self) -> int | None:
        """Its exit status, negative where a signal ended it; ``None`` as long as it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended.

        :raises subprocess.TimeoutExpired: if it still runs after that many seconds.
        """
        ...

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        ...


Launch = Callable[[str, Sequence[str], Path], Program]
"""Start the ``main()`` of a module, such as ``vmqos.agent.main``, with these arguments, in a session of its own and
without standard input; its output is appended to the file."""


def launch(module: str, arguments: Sequence[str], log: Path) -> Program:
    """As everywhere, by ``python -m MODULE`` (:data:`Launch`)."""
    command = [sys.executable, "-m", module, *arguments]
    with log.open("ab") as output:
        return subprocess.Popen(
            command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


class Preloaded:
    """Starts programs (:data:`Launch`) as forks of a process that has imported their modules.

    Imports take most of an agent's start, seconds where a CPU is emulated, and nothing is learnt from doing them again.
    What is started is a process like any other, with nothing of an earlier one in it.

    :param modules: to import, each one that is to be started among them.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(modules))

    def __call__(self, module: str, arguments: Sequence[str], log: Path) -> Program:
        """See :data:`Launch`."""
        process = self._context.Process(target=_run, args=(module, tuple(arguments), str(log), dict(os.environ)))
        process.start()
        return _Forked(process)


class _Forked:
    """What :class:`Preloaded` started."""

    def __init__(self, process: multiprocessing.context.ForkServerProcess) -> None:
        assert process.pid is not None
        self._process = process
        self.pid = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # The process may be reaped already, and its status be on the way here from the one that forked it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _run(module: str, arguments: Sequence[str], log: str, environ: Mapping[str, str]) -> None:
    """Be the program, in the forked process."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(CHECKOUT)
    for path, flags, descriptors in (
        (os.devnull, os.O_RDONLY, (0,)),
        (log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2)),
    ):
        opened = os.open(path, flags, 0o644)
        for descriptor in descriptors:
            os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = [module, *arguments]
    sys.exit(importlib.import_module(module).main())
