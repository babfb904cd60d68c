# SPDX-License-Identifier: Apache-2.0
"""Asking libvirt which VMs run, in a thread of its own: libvirt answers late while it starts or ends a VM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PATIENCE = 0.1
"""Seconds that a round waits for the list while it has other work, too. The list takes some milliseconds."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What libvirt answered.

    :ivar since: when it was asked, by the monotonic clock.
    :ivar running: libvirt's ID of each VM that runs, by UUID; ``None`` where libvirt did not answer.
    :ivar error: why libvirt did not answer; ``None`` where it did.
    """

    since: float
    running: Mapping[str, int] | None = None
    error: Exception | None = None


class Listing:
    """Asks libvirt one question at a time; :meth:`wake` may be called from any thread, the other methods from one.

    :param ask: asks libvirt, and may take for ever.
    :param on_late: called from the thread once there is an answer that :meth:`fetch` no longer waited for.
    """

    def __init__(self, ask: Callable[[], Mapping[str, int]], on_late: Callable[[], None]) -> None:
        self._ask = ask
        self._on_late = on_late
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._since: float | None = None
        self._answer: Listed | None = None
        self._is_late = False
        self._closed = False

    def fetch(self, is_needed_elsewhere: Callable[[], bool]) -> Listed | None:
        """The answer of libvirt to this question, or its late answer to an earlier one.

        :param is_needed_elsewhere: whether other work waits that needs no list; it is asked again after each
            :meth:`wake`.
        :returns: ``None`` where the answer takes longer than :data:`PATIENCE` and other work waits.
        """
        with self._condition:
            if self._since is None and self._answer is None:
                self._since = time.monotonic()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="listing", daemon=True)
                    self._thread.start()
                self._condition.notify_all()
            until = time.monotonic() + PATIENCE
            while self._answer is None and not self._closed:
                left = until - time.monotonic()
                if left <= 0 and is_needed_elsewhere():
                    self._is_late = True
                    return None
                self._condition.wait(left if left > 0 else None)
            self._is_late = False
            answer, self._answer = self._answer, None
            return answer

    def wake(self) -> None:
        """Tell :meth:`fetch` that other work waits that needs no list."""
        with self._condition:
            self._condition.notify_all()

    def close(self) -> None:
        """End the thread, as soon as libvirt lets it go."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._since is not None or self._closed)
                if self._closed or self._since is None:
                    return
                since = self._since
            try:
                answer = Listed(since, self._ask())
            except Exception as error:  # the caller of fetch gets it
                answer = Listed(since, error=error)
            with self._condition:
                self._answer, self._since = answer, None
                is_late = self._is_late
                self._condition.notify_all()
            if is_late:
                self._on_late()
