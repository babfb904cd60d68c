# SPDX-License-Identifier: Apache-2.0
"""Logging a trouble that lasts only once, and again when it changes."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

BURST = 4
"""How many lines a key may log at once."""

REFILL = 600.0
"""Seconds until a key may log one line more, so that a text that changes all the time does not fill the disk."""

KEYS_MAX = 4096
"""How many keys are remembered; the one that was used longest ago is forgotten first."""


@dataclass(slots=True)
class _Told:
    text: str | None
    credit: float
    since: float
    """When ``credit`` was computed, by the clock."""
    dropped: int = 0


class LogOnce:
    """Logs a line only if the last line of its key had another text; any thread may call.

    A pass that fails repeats itself every second. The first line says what is wrong; a repetition says nothing new. A
    text that differs each time (it may name a thread) is no repetition, so each key also has a budget: ``BURST`` lines
    at once, and then one line every ``REFILL`` seconds. The next line says how many lines were left out.

    :param logger: where the lines go.
    :param clock: monotonic seconds.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._told: OrderedDict[Hashable, _Told] = OrderedDict()

    def log(
        self,
        level: int,
        key: Hashable,
        message: str,
        *arguments: object,
        error: BaseException | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> bool:
        """Log a line, unless the key's last line said it already.

        :param key: what the line is about, such as ``("look", uuid)``.
        :param message: as :meth:`logging.Logger.log` takes it.
        :param error: the exception whose traceback is added; it does not count as text.
        :param fields: what :func:`vmqos.daemon.journal.fields` made; it does not count as text, either.
        :returns: whether the line was logged.
        """
        text = message % arguments if arguments else message
        with self._lock:
            told = self._of(key)
            if told.text == text:
                return False
            if told.credit < 1:
                told.dropped += 1
                return False
            told.text, told.credit = text, told.credit - 1
            dropped, told.dropped = told.dropped, 0
        if dropped:
            text = f"{text} ({dropped} earlier lines about this were left out)"
        self._logger.log(level, "%s", text, exc_info=error, extra=fields, stacklevel=2)
        return True

    def end(self, key: Hashable) -> bool:
        """Note that the trouble is over: the key's next line is news, whatever it says. Its budget does not change.

        :returns: whether a line of this key was logged since the last call.
        """
        with self._lock:
            told = self._told.get(key)
            if told is None or told.text is None:
                return False
            told.text = None
            return True

    def _of(self, key: Hashable) -> _Told:
        now = self._clock()
        told = self._told.get(key)
        if told is None:
            told = self._told[key] = _Told(None, BURST, now)
            if len(self._told) > KEYS_MAX:
                self._told.popitem(last=False)
        self._told.move_to_end(key)
        told.credit = min(BURST, told.credit + (now - told.since) / REFILL)
        told.since = now
        return told
