# SPDX-License-Identifier: Apache-2.0
"""For how long a VM's promise was kept, and how often its state changed."""

from __future__ import annotations

from dataclasses import dataclass

from vmqos.allocation import PromiseState


@dataclass(frozen=True, slots=True)
class PromiseTime:
    """What has become of one VM's promise since the agent first judged it; pure.

    :ivar state: the state that it is in.
    :ivar since: when it came into that state, by the monotonic clock.
    :ivar changes: how often its state changed.
    :ivar promised: seconds, up to ``since``, for which something was promised.
    :ivar kept: seconds of these for which the promise was kept.
    """

    state: PromiseState
    since: float
    changes: int = 0
    promised: float = 0.0
    kept: float = 0.0

    def judged(self, state: PromiseState, now: float) -> PromiseTime:
        """The times of this promise once a pass has judged it.

        :param state: the state that the promise is in now.
        :param now: the monotonic clock.
        """
        if state is self.state:
            return self
        return PromiseTime(state, now, self.changes + 1, self.promised_until(now), self.kept_until(now))

    def promised_until(self, now: float) -> float:
        """Seconds for which something was promised."""
        return self.promised + (self._in_this_state(now) if self.state is not PromiseState.NONE else 0.0)

    def kept_until(self, now: float) -> float:
        """Seconds for which the promise was kept."""
        return self.kept + (self._in_this_state(now) if self.state is PromiseState.KEPT else 0.0)

    def _in_this_state(self, now: float) -> float:
        return max(0.0, now - self.since)
