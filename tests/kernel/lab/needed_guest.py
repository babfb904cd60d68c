# SPDX-License-Identifier: Apache-2.0
"""Which tests belong together, by their names: those for one guest. And how long each of these groups takes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from tests.kernel.lab.machines import APART, CORE, CORE_PART, KERNELS, LONG_PART, MACHINES

_GUEST = re.compile(rf"\[((?:{'|'.join(map(re.escape, MACHINES))})-(?:{'|'.join(map(re.escape, KERNELS))}))[-\]@]")


def guest_of(nodeid: str) -> str | None:
    """The machine and the kernel that a test is for, such as ``milan-6.12``; ``None`` where it is for none."""
    guest = _GUEST.search(nodeid)
    return guest[1] if guest else None


def part_of(nodeid: str, *, is_long: bool) -> str:
    """Which of :data:`tests.kernel.lab.machines.PARTS` a test belongs to.

    :param is_long: whether it is marked as ``long``.
    """
    guest = guest_of(nodeid)
    if is_long and (guest is None or guest in APART):
        return f"{LONG_PART}-{guest}" if guest else LONG_PART
    return CORE_PART if guest is None or guest in CORE else guest


_ONE_BOOT = {"tests/kernel/units/test_units.py": 150.0}
"""Modules that boot one guest for all of their tests, and how many seconds it runs. If two workers had a part of the
tests each, either would boot it."""


def group_of(nodeid: str) -> str | None:
    """What a test shares a guest with: :func:`guest_of`, or its module where that boots one; ``None`` for no others."""
    module = nodeid.partition("::")[0]
    return module if module in _ONE_BOOT else guest_of(nodeid)


_AGENT_TESTS = re.compile(r"tests/kernel/\w+/")
_AGENT_TEST = 10.0
_KVM_AGENT_TEST = 20.0
_AGENT_TEST_ON = {"sapphire-rapids": 28.0, "goldmont": 25.0, "genoa": 35.0}
_OTHER_TEST = 0.2
"""Seconds that a test takes, about: one with an agent and processes in place of VMs, one with an agent and real VMs,
one with an agent on a machine whose few tests are the long ones, and one of resctrl alone. Only their order counts."""


def seconds(nodeids: Iterable[str]) -> dict[str | None, float]:
    """How long each group takes, about; under ``None`` is what needs no guest, or starts one for itself."""
    total = defaultdict[str | None, float](float)
    for nodeid in nodeids:
        group = group_of(nodeid)
        total[group] += _lasts(nodeid, group)
    return {group: _ONE_BOOT.get(group or "", lasts) for group, lasts in total.items()}


def _lasts(nodeid: str, group: str | None) -> float:
    if group is None or not _AGENT_TESTS.match(nodeid):
        return _OTHER_TEST
    name = group.rpartition("-")[0]
    usual = _KVM_AGENT_TEST if name in MACHINES and MACHINES[name].kvm else _AGENT_TEST
    return _AGENT_TEST_ON.get(name, usual)
