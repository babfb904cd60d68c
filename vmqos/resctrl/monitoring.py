# SPDX-License-Identifier: Apache-2.0
"""What a group's ``mon_data`` directory holds, and what the text of a counter means.

The kernel makes a directory for each cache, ``mon_L3_XX``, with a file for each event (``llc_occupancy``,
``mbm_total_bytes``, ``mbm_local_bytes``). With sub-NUMA clusters (Linux 6.11 and later) those are sums over the
cache's nodes, and ``mon_sub_L3_YY`` below has each node's own. Linux 7.0 and later may add ``mon_PERF_PKG_XX``, one
for each processor package (Intel's Application Energy Telemetry, AET). The names of its events are the kernel's
(``mon_event_all`` in fs/resctrl/monitor.c); which of them a processor has is in ``info/PERF_PKG_MON/mon_features``. Two
habits differ from those of an L3's counters:

* A group that gets an RMID that another one had goes on from that one's counts: the kernel lets the bandwidth counters
  of an L3 alone begin anew (``mon_add_all_files`` in fs/resctrl/rdtgroup.c).
* A package that has heard nothing of an RMID yet says ``Unavailable`` (``intel_aet_read_event`` in
  arch/x86/kernel/cpu/resctrl/intel_aet.c); until then it has counted nothing for it.

Counters are files that every user may read (mode 0444). Their directories have the mode of the group, and a group has
the mode that its maker's ``mkdir`` said: 0755 for those of vmqos.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from vmqos.resctrl.filesystem import Filesystem, join

MON_DATA = "mon_data"

CORE_ENERGY = "core_energy"
"""Joules that the cores used: arithmetic, TLBs, L1 and L2; neither the L3 nor memory."""
CYCLES = "unhalted_core_cycles"
"""Cycles for which a CPU ran."""
STALLS_LLC_HIT = "stalls_llc_hit"
"""Cycles stalled on loads that hit the last-level cache."""
STALLS_LLC_MISS = "stalls_llc_miss"
"""Cycles stalled on loads that missed it."""
UOPS_RETIRED = "uops_retired"
"""Micro-operations that were retired."""

_CACHE = re.compile(r"mon_L3_([0-9]+)")
_NODE = re.compile(r"mon_sub_L3_([0-9]+)")
_PACKAGE = re.compile(r"mon_PERF_PKG_([0-9]+)")


class Missing(StrEnum):
    """Why there is no number."""

    UNAVAILABLE = "unavailable"
    """The hardware has no valid value now: ``Unavailable``. The next read may have one."""
    ERROR = "error"
    """The hardware or the kernel failed: ``Error``, or a text that is no number and none of the kernel's words."""
    UNASSIGNED = "unassigned"
    """No hardware counter is assigned to this group and event: ``Unassigned`` (AMD, ``mbm_event`` mode)."""
    NO_COUNTER = "no-counter"
    """The machine does not count this event."""
    UNREADABLE = "unreadable"
    """The reader lacks the permission."""
    VANISHED = "vanished"
    """The group or the cache went away while it was being read."""
    NOT_MONITORED = "not-monitored"
    """There is no group to read: no RMID was left, or its owner is not placed yet."""
    NO_PREVIOUS = "no-previous"
    """A rate needs an earlier reading of the same group, and there is none."""
    WENT_BACK = "went-back"
    """A rate can't be told, for the counter is less than it was: it began anew."""


Value = int | float | Missing
"""What a counter says, at no cost: a number, or why there is none."""


class Reading(NamedTuple):
    """A number or the reason why there is none, exactly one of them.

    :ivar value: bytes, but for a package's events: joules (``core_energy``), farads (``activity``) and plain counts.
    :ivar missing: why there is no value.
    """

    value: int | float | None
    missing: Missing | None = None

    @classmethod
    def of(cls, value: Value) -> Reading:
        """The reading of a plain value."""
        return _NONE[value] if isinstance(value, Missing) else cls(value)

    @classmethod
    def none(cls, missing: Missing) -> Reading:
        """No number, for this reason."""
        return _NONE[missing]


_NONE: dict[Value, Reading] = {missing: Reading(None, missing) for missing in Missing}
_WORDS = {b"Unavailable": Missing.UNAVAILABLE, b"Error": Missing.ERROR, b"Unassigned": Missing.UNASSIGNED}


def parse(raw: bytes) -> Value:
    """Read the content of one counter's file (``rdtgroup_mondata_show`` in the kernel).

    What is neither a number of 0 or more nor a word that we know is an error, never 0.
    """
    text = raw.strip()
    try:
        value = _number(text)
    except ValueError:
        return _WORDS.get(text, Missing.ERROR)
    return value if 0 <= value < math.inf else Missing.ERROR


def _number(text: bytes) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def whole_numbers(raw: Sequence[bytes | Missing]) -> list[Value] | None:
    """Read the contents of many counters' files, at little cost; ``None`` unless all are whole numbers of 0 or more."""
    try:
        numbers = list(map(int, raw))
    except ValueError:
        return None
    return list[Value](numbers) if min(numbers, default=0) >= 0 else None


def parse_all(raw: Sequence[bytes | Missing]) -> list[Value]:
    """Read the contents of many counters' files; a file that could not be read stands as the reason.

    It costs little where all are whole numbers, which the kernel prints unsigned.
    """
    numbers = whole_numbers(raw)
    if numbers is not None:
        return numbers
    return [text if isinstance(text, Missing) else parse(text) for text in raw]


def readings(values: Sequence[Value]) -> list[Reading]:
    """Many values as readings, at less cost than by :meth:`Reading.of` for each."""
    of_number = partial(tuple.__new__, Reading)
    return [_NONE.get(value) or of_number((value, None)) for value in values]


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """What a directory of ``mon_data`` counts.

    :ivar cache: the id of the L3; ``None`` for a package's events.
    :ivar node: the sub-NUMA node of that cache; ``None`` where it is the whole cache.
    :ivar package: the id of the processor package; ``None`` for a cache's events.
    """

    cache: int | None = None
    node: int | None = None
    package: int | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """One directory of ``mon_data``.

    :ivar path: relative to the group.
    :ivar events: the names of its files, in ascending order.
    """

    source: Source
    path: str
    events: tuple[str, ...]


def read_counters(fs: Filesystem, group: str = "") -> tuple[Counters, ...]:
    """The directories of a group's ``mon_data``: caches by id, each followed by its nodes, then packages by id.

    Every group has the same, so the default group's stand for all. Directories that this version does not know are
    passed over.

    :param group: the group's directory below the root.
    :raises vmqos.resctrl.exceptions.Vanished: if there is no such group, or nothing is monitored on this machine.
    :raises vmqos.resctrl.exceptions.Unreadable: if the caller may not look into it.
    """
    caches, packages = [], []
    for name in fs.listdir(group, MON_DATA):
        cache, package = _CACHE.fullmatch(name), _PACKAGE.fullmatch(name)
        if cache:
            caches += _of_cache(fs, group, name, int(cache[1]))
        elif package:
            path = join(MON_DATA, name)
            packages.append(Counters(Source(package=int(package[1])), path, tuple(sorted(fs.listdir(group, path)))))
    caches.sort(key=lambda found: (found.source.cache, -1 if found.source.node is None else found.source.node))
    packages.sort(key=lambda found: found.source.package or 0)
    return (*caches, *packages)


def is_cache(name: str) -> bool:
    """Whether a directory of ``mon_data`` with that name counts for a cache."""
    return _CACHE.fullmatch(name) is not None


def nodes(names: Sequence[str]) -> dict[str, int]:
    """The sub-NUMA nodes that a cache's directory has directories of, by these directories' names.

    :param names: what is in the cache's directory.
    """
    return {name: int(match[1]) for name in names if (match := _NODE.fullmatch(name))}


def _of_cache(fs: Filesystem, group: str, name: str, cache: int) -> list[Counters]:
    path = join(MON_DATA, name)
    names = fs.listdir(group, path)
    of_nodes = nodes(names)
    found = [Counters(Source(cache), path, tuple(sorted(set(names) - of_nodes.keys())))]
    for directory, node in of_nodes.items():
        below = join(path, directory)
        found.append(Counters(Source(cache, node), below, tuple(sorted(fs.listdir(group, below)))))
    return found
