# SPDX-License-Identifier: Apache-2.0
"""One sweep a polling cycle, whichever meter comes first."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from typing import Any

from ceilometer_pollster import reasons
from ceilometer_pollster.once_a_cycle import OfService, OnceACycle
from ceilometer_pollster.reasons import Instance, Reasons
from vmqos.resctrl.exceptions import ResctrlError
from vmqos.telemetry import Snapshot, Sweeper

LOG = logging.getLogger(__name__)


class Watch:
    """The counters of a host, as the pollsters of one ``ceilometer-polling`` look at them.

    No file stays open between two cycles: they are minutes apart, and an operator's ``umount`` must work.

    :param root: where resctrl is mounted.
    """

    def __init__(self, root: str) -> None:
        self._sweeper = Sweeper(root, keep_open=False)
        self._sweeps = OnceACycle("vmqos", self._sweep)
        self._reasons: Reasons = {}
        self._failure = ""

    def snapshot(self, cache: MutableMapping[str, Any], instances: Sequence[Instance]) -> Snapshot | None:
        """This cycle's sweep, made now if no pollster made it yet; ``None`` if resctrl can't be read in this cycle.

        What keeps instances from having samples is logged, if it was not in the cycle before.

        :param cache: the cycle's.
        :param instances: those that are to have samples.
        """
        return self._sweeps.of(cache, instances)

    def _sweep(self, instances: Sequence[Instance]) -> Snapshot | None:
        found = self._try_to_sweep()
        if isinstance(found, ResctrlError):
            # Not within an "except": oslo.log would tell the error twice.
            if str(found) != self._failure:
                LOG.error("no samples of caches and memory bandwidth: %s", found)
            self._failure = str(found)
            return None
        if self._failure:
            LOG.info("resctrl can be read again")
            self._failure = ""
        now = reasons.find(found, instances)
        for line in reasons.tell(self._reasons, now, instances):
            LOG.log(line.level, line.text)
        self._reasons = now
        return found

    def _try_to_sweep(self) -> Snapshot | ResctrlError:
        try:
            return self._sweeper.sweep()
        except ResctrlError as error:
            return error


of_service = OfService(Watch)
"""The watch of a service, with the resctrl that it is configured with."""
