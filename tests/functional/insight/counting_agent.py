# SPDX-License-Identifier: Apache-2.0
"""The agent on a machine that seems to count hardware events: those that a played simulator tells.

It takes the agent's own arguments. What each VM executes is in the file ``MOUNTPOINT.events`` of
:mod:`tests.functional.insight.playing_simulator`. All else is the agent's own.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from oslo_config import cfg

from vmqos.agent.main import main as run
from vmqos.agent.sample import hardware_counts
from vmqos.agent.sample.hardware_counts import HardwareCounts, Look, Uncounted, VmCounts
from vmqos.telemetry import hardware_events
from vmqos.telemetry.hardware_events import WhyNot


class PlayedCounts(HardwareCounts):
    """The hardware events of all VMs, out of a file."""

    file = Path()

    def _look(self) -> Look:
        told = json.loads(self.file.read_text()) if self.file.exists() else {}
        now = time.time()
        return Look(time.monotonic(), now, vms={uuid: _told(told.get(uuid), now) for uuid in self._vms()})


def _told(rates: Sequence[float] | None, now: float) -> VmCounts | Uncounted:
    if not rates:
        return Uncounted(hardware_counts.STARTING, "nothing was played yet")
    # What is counted in all is told nowhere in these commands.
    return VmCounts(now, tuple(map(int, rates)), tuple(map(float, rates)), 1.0)


def _played(conf: cfg.ConfigOpts, *arguments: object) -> HardwareCounts:
    PlayedCounts.file = Path(f"{conf.resctrl.path}.events")
    vms, give_way = arguments
    return PlayedCounts(vms, conf.telemetry.interval, give_way)  # type: ignore[arg-type]


@contextlib.contextmanager
def playing() -> Iterator[None]:
    """Have the agent of this process count what is played, while the block runs."""
    with (
        patch.object(HardwareCounts, "of", _played),
        patch.object(hardware_events, "may_count", lambda: True),
        patch.object(hardware_events, "why_not", lambda events: WhyNot()),
        patch.object(hardware_events, "are_of_the_l3", lambda: True),
    ):
        yield


def main() -> int:
    """Run it."""
    with playing():
        return run()


if __name__ == "__main__":
    sys.exit(main())
