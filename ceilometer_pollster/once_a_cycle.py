# SPDX-License-Identifier: Apache-2.0
"""What all pollsters of one ``ceilometer-polling`` share: something is found once a polling cycle."""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from ceilometer_pollster.reasons import Instance

_T = TypeVar("_T")


class OnceACycle(Generic[_T]):
    """Finds something for the first pollster of a cycle, and has it for the others.

    :param key: where the cycle's cache, which Ceilometer empties between cycles, has what was found.
    :param find: finds it, or nothing, for these instances; it is called for one cycle at a time.
    """

    def __init__(self, key: str, find: Callable[[Sequence[Instance]], _T | None]) -> None:
        self._key = key
        self._find = find
        # [polling] threads_to_process_pollsters may be more than one.
        self._lock = threading.Lock()

    def of(self, cache: MutableMapping[str, Any], instances: Sequence[Instance]) -> _T | None:
        """What there is in this cycle; ``None`` if nothing was found.

        :param cache: the cycle's.
        :param instances: those that are to have samples.
        """
        with self._lock:
            if self._key not in cache:
                cache[self._key] = self._find(instances)
            found: _T | None = cache[self._key]
            return found


class OfService(Generic[_T]):
    """One of a kind for each service.

    Ceilometer makes each meter's pollster by itself; all that they have in common is the service that runs them.

    :param make: makes one, with what the first pollster was configured with.
    """

    def __init__(self, make: Callable[[str], _T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[object, _T] = WeakKeyDictionary()

    def __call__(self, manager: object, configured: str) -> _T:
        """The one that all pollsters of this service share.

        :param manager: Ceilometer's ``AgentManager``.
        """
        return self._made.get(manager) or self._made.setdefault(manager, self._make(configured))
