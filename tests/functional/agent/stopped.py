# SPDX-License-Identifier: Apache-2.0
"""A process that stands still for a while."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """All threads of the process are stopped: a libvirtd does not even answer keep-alive messages."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
