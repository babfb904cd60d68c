# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread does."""

from __future__ import annotations

from collections.abc import Callable

from tools.lab import processes


def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition is true.

    :raises TimeoutError: after a minute in which this machine had a CPU for it.
    """
    processes.wait_until(condition, "what the test waits for", 60.0, 0.005)
