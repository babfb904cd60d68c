# SPDX-License-Identifier: Apache-2.0
"""One question to the agent a polling cycle, whichever meter comes first."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from ceilometer_pollster import agent_api, reasons
from ceilometer_pollster.agent_api import Look, NoCounts
from ceilometer_pollster.once_a_cycle import OfService, OnceACycle
from ceilometer_pollster.reasons import Instance, Reasons

LOG = logging.getLogger(__name__)

_WHAT = "hardware events"

_REST = "hardware events, but for those of cycles"
"""The packages count cycles, and nothing else of these meters."""

_UNKNOWN = "vmqos-agent does not count it (yet)"


class AgentWatch:
    """What the agent has counted, as the pollsters of one ``ceilometer-polling`` ask for it.

    :param socket: the agent's.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._looks = OnceACycle("vmqos-hardware-events", self._ask)
        self._reasons: Reasons = {}

    def look(self, cache: MutableMapping[str, Any], instances: Sequence[Instance]) -> Look | None:
        """This cycle's answer, asked for now if no pollster did yet; ``None`` if there are no counts in this cycle.

        What keeps instances from having samples is logged, if it was not in the cycle before.

        :param cache: the cycle's.
        :param instances: those that are to have samples.
        """
        return self._looks.of(cache, instances)

    def _ask(self, instances: Sequence[Instance]) -> Look | None:
        found = self._try_to_ask()
        # While the agent does not tell, an instance has no samples again for its own reason.
        host = {**self._reasons, ("", _WHAT): str(found)}
        now = {**self._of_resting(instances), **dict(_reasons(found, instances))} if isinstance(found, Look) else host
        # Not within an "except": oslo.log would tell the error twice.
        for line in reasons.tell(self._reasons, now, instances):
            LOG.log(line.level, line.text)
        if ("", _WHAT) in self._reasons and ("", _WHAT) not in now:
            LOG.info("vmqos-agent tells what instances execute again")
        self._reasons = now
        return found if isinstance(found, Look) else None

    def _of_resting(self, instances: Sequence[Instance]) -> Reasons:
        """What kept instances from having samples that do not run now: whether it is over is seen when they run."""
        resting = {instance.id for instance in instances if reasons.is_at_rest(instance)}
        return {key: text for key, text in self._reasons.items() if key[0] in resting}

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
            yield (instance.id, _REST if found.counts else _WHAT), found.reason


of_service = OfService(AgentWatch)
"""The watch of a service, with the agent's socket that it is configured with."""
