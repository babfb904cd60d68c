# SPDX-License-Identifier: Apache-2.0
"""Small Python programs that a test starts as processes of their own, and waits for."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

Start = Callable[..., int]
"""Takes a program that prints ``ready`` and then goes on, and its arguments; gives its PID once it has printed that."""


@contextlib.contextmanager
def starting() -> Iterator[Start]:
    """What starts programs; all of them are killed at the end."""
    children: list[subprocess.Popen[bytes]] = []

    def start(program: str, *arguments: object) -> int:
        child = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child.pid

    try:
        yield start
    finally:
        for child in children:
            child.kill()
            child.communicate()
