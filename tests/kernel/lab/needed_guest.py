# SPDX-License-Identifier: Apache-2.0
"""Which guest a test is for, by its name, and how long all that a guest has to run takes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

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
