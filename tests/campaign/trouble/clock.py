# SPDX-License-Identifier: Apache-2.0
"""A clock that a story moves on, and nothing else, and the clock on the wall, which it sets back.

So a story waits for no back-off, and what happens in it is the same however fast the machine is on which it is played.
"""

from __future__ import annotations

import time


class Clock:
    """The seconds since boot and the clock on the wall, as the agent's back-offs and the simulated machine see them."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._leapt = 0.0
        self._back = 0.0
        self._wall = time.time

    def monotonic(self) -> float:
        """Seconds since boot; never less than before."""
        return self._began + self._leapt

    def wall(self) -> float:
        """Seconds since 1970, as far as the administrator has left the clock alone."""
        return self._wall() + self._leapt - self._back

    def leap(self, seconds: float) -> None:
        """Let time pass.

        :param seconds: 0 or more.
        """
        self._leapt += seconds

    def set_back(self, seconds: float) -> None:
        """Have the administrator set the clock on the wall back.

        :param seconds: 0 or more.
        """
        self._back += seconds
