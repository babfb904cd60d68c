# SPDX-License-Identifier: Apache-2.0
"""One question to the agent a polling cycle, whichever meter comes first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ceilometer_pollster import agent_api, reasons
from ceilometer_pollster.agent_api import Look, NoCounts
from ceilometer_pollster.reasons import Instance, Reasons

LOG = logging.getLogger(__name__)

_IN_CACHE = "vmqos-hardware-events"
"""Where the cycle's cache, which Ceilometer empties between cycles, has the answer."""

_WHAT = "hardware events"

_UNKNOWN = "vmqos-agent does not count it (yet)"


class AgentWatch:
    """What the agent has counted, as the pollsters of one ``ceilometer-polling`` ask for it.

    :param socket: the agent's.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        # [polling] threads_to_process_pollsters may be more than one.
        self._lock = threading.Lock()
        self._reasons: Reasons = {}

    def look(self, cache: MutableMapping[str, Any], instances: Sequence[Instance]) -> Look | None:
        """This cycle's answer, asked for now if no pollster did yet; ``None`` if there are no counts in this cycle.

        What keeps instances from having samples is logged, if it was not in the cycle before.

        :param cache: the cycle's.
        :param instances: those that are to have samples.
        """
        with self._lock:
            if _IN_CACHE not in cache:
                cache[_IN_CACHE] = self._ask(instances)
            found: Look | None = cache[_IN_CACHE]
            return found

    def _ask(self, instances: Sequence[Instance]) -> Look | None:
        found = self._try_to_ask()
        # While the agent does not tell, an instance has no samples again for its own reason.
        host = {**self._reasons, ("", _WHAT): str(found)}
        now = dict(_reasons(found, instances)) if isinstance(found, Look) else host
        # Not within an "except": oslo.log would tell the error twice.
        for line in reasons.tell(self._reasons, now, instances):
            LOG.log(line.level, line.text)
        if ("", _WHAT) in self._reasons and ("", _WHAT) not in now:
            LOG.info("vmqos-agent tells what instances execute again")
        self._reasons = now
        return found if isinstance(found, Look) else None

    def _try_to_ask(self) -> Look | NoCounts:
        try:
            return agent_api.ask(self._socket)
        except NoCounts as error:
            return error


def _reasons(look: Look, instances: Sequence[Instance]) -> Iterator[tuple[tuple[str, str], str]]:
    """Why instances that run have no samples. That one does not run is said with the meters of caches."""
    for instance in instances:
        if reasons.is_at_rest(instance):
            continue
        found = look.vms.get(instance.id)
        if found is None:
            yield (instance.id, _WHAT), _UNKNOWN
        elif found.reason:
            yield (instance.id, _WHAT), found.reason


_WATCHES: WeakKeyDictionary[object, AgentWatch] = WeakKeyDictionary()
"""As those of :mod:`ceilometer_pollster.watch`."""


def of_service(manager: object, socket: str) -> AgentWatch:
    """The watch that all pollsters of this service share.

    :param manager: Ceilometer's ``AgentManager``.
    """
    return _WATCHES.get(manager) or _WATCHES.setdefault(manager, AgentWatch(socket))
