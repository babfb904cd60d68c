# SPDX-License-Identifier: Apache-2.0
"""Masks: all ways of a cache, and those that keep groups apart, which many cases begin with."""

from __future__ import annotations

from tests.conformance import needs
from tests.conformance.answer import done
from tests.conformance.resctrl import Resctrl
from vmqos.simulator.hardware.profiles import CacheAllocation

LOW, HIGH = 0xF, 0xF0
"""Four ways each, which every machine has, and of which no machine shares one with devices."""


def every_way(cache: CacheAllocation) -> int:
    """The mask with all ways of a cache."""
    return (1 << cache.ways) - 1


def give(rdt: Resctrl, group: str, ways: int) -> None:
    """Let a group have the same ways of every cache of a mount without CDP."""
    for cache in needs.caches_of(rdt.profile):
        line = ";".join(f"{number}={ways:x}" for number in rdt.cache_ids(cache.level))
        path = f"{group}/schemata" if group else "schemata"
        assert rdt.write(path, f"{cache.name}:{line}\n") == done()


def apart(rdt: Resctrl, group: str = "g") -> str:
    """Make a group that has :data:`LOW`, the default group having :data:`HIGH`."""
    rdt.group(group)
    give(rdt, "", HIGH)
    give(rdt, group, LOW)
    return group


def exclusive(rdt: Resctrl, group: str = "g") -> str:
    """Make a group that has :data:`LOW` for itself."""
    apart(rdt, group)
    assert rdt.write(f"{group}/mode", "exclusive\n") == done()
    return group
