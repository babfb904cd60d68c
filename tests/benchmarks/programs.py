# SPDX-License-Identifier: Apache-2.0
"""The C programs of this folder: built where they are first used; one of them is many sleeping threads."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def compiled(name: str) -> str:
    """The path of a C program of this folder, built at its first use, for as long as this process lives."""
    folder = tempfile.mkdtemp(prefix="vmqos-benchmarks-")
    atexit.register(shutil.rmtree, folder)
    program = os.path.join(folder, name)
    subprocess.run(["gcc", "-O2", "-pthread", "-o", program, str(HERE / f"{name}.c")], check=True)
    return program


@contextmanager
def sleeping(processes: int, threads: int) -> Iterator[list[list[int]]]:
    """Processes of that many sleeping threads each: the thread ids of each process, its PID in front."""
    running = subprocess.Popen(
        [compiled("threads"), str(processes), str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdin is not None and running.stdout is not None
    try:
        yield [[int(word) for word in running.stdout.readline().split()] for _ in range(processes)]
    finally:
        running.stdin.close()
        running.stdout.close()
        running.wait()
