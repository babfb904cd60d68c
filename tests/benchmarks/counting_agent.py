# SPDX-License-Identifier: Apache-2.0
"""The agent, in which events of the kernel's own stand in for those of the processor: few virtual machines have these.

A read of either costs the agent the same. It takes the agent's own arguments, and counts as many tasks as it would with
the limit of open files that its unit has.
"""

from __future__ import annotations

import sys

from vmqos.agent import main as agent
from vmqos.agent.sample.hardware_counts import HardwareCounts
from vmqos.telemetry import descriptors
from vmqos.telemetry.perf_event import Event

EVENTS: tuple[Event, ...] = ((1, 1), (1, 3), (1, 2), (1, 4))
"""PERF_TYPE_SOFTWARE: the task's clock, context switches, migrations to another CPU, page faults."""

FILES = 65536
"""``LimitNOFILE=`` of its unit."""

if __name__ == "__main__":
    descriptors.raise_limit()
    descriptors.raise_limit = lambda: FILES - descriptors.SPARE
    defaults = HardwareCounts.__init__.__kwdefaults__
    assert defaults is not None
    defaults["events"] = EVENTS
    sys.exit(agent.main())
