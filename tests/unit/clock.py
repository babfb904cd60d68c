# SPDX-License-Identifier: Apache-2.0
"""A clock for what waits."""

from __future__ import annotations


class Clock:
    """Seconds of a clock that stands until the test sets ``now``."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
