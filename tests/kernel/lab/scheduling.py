# SPDX-License-Identifier: Apache-2.0
"""Which worker of pytest-xdist runs what: tests of one guest belong together, all others go where there is room.

The guest that takes longest goes first, so that no worker is left with it while the others rest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from xdist.scheduler import LoadGroupScheduling

from tests.kernel.lab.machines import KERNELS, MACHINES

_GUEST = re.compile(rf"\[((?:{'|'.join(map(re.escape, MACHINES))})-(?:{'|'.join(map(re.escape, KERNELS))}))[-\]@]")


def guest_of(nodeid: str) -> str | None:
    """The machine and the kernel that a test is for, such as ``milan-6.12``; ``None`` where it is for none."""
    guest = _GUEST.search(nodeid)
    return guest[1] if guest else None


_AGENT_TESTS = re.compile(r"tests/kernel/\w+/")
_AGENT_TEST = 10.0
_OTHER_TEST = 0.2
"""Seconds that a test takes, about: one with an agent and VMs, and one of resctrl alone."""


def seconds(nodeids: Iterable[str]) -> dict[str | None, float]:
    """How long each guest takes, about; under ``None`` is what needs none, or starts one for itself."""
    total = defaultdict[str | None, float](float)
    for nodeid in nodeids:
        guest = guest_of(nodeid)
        total[guest] += _AGENT_TEST if guest and _AGENT_TESTS.match(nodeid) else _OTHER_TEST
    return dict(total)


class GuestScheduling(LoadGroupScheduling):  # type: ignore[misc]  # pytest-xdist ships no types
    """``--dist loadgroup``, with a group for each machine and kernel."""

    def _split_scope(self, nodeid: str) -> str:
        return guest_of(nodeid) or super()._split_scope(nodeid)
