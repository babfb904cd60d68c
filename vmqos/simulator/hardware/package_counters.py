# SPDX-License-Identifier: Apache-2.0
"""What the processor packages have counted, by RMID (Intel's Application Energy Telemetry).

Two habits are not those of an L3's counters (``intel_aet_read_event``, ``mon_add_all_files``): an RMID of which the
package has heard nothing yet is *Unavailable*, and a group that gets a used RMID gets its counts with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmqos.simulator.hardware.profiles import ENERGY_EVENTS

FRACTION_BITS = 18
"""Binary places of the events with a fraction (``energy_0x26696143``)."""
_PLACES = 6
"""Decimal places that show them all: ``ceil(FRACTION_BITS * log10(2))`` (``decplaces`` in fs/resctrl/ctrlmondata.c)."""

CORE_HERTZ = 2.6e9
REFERENCE_HERTZ = 2.0e9
_UOPS_PER_CYCLE = 2.0
_BYTES_PER_STALL = 64
_CYCLES_PER_MISS = 250.0
_CYCLES_PER_HIT = 60.0
_HITS_PER_MISS = 3.0
_JOULES_PER_SECOND = 1.5
_FARADS_PER_SECOND = 0.4


class PackageCounters:
    """The counters of all packages, and the faults that a test wants them to show."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], dict[str, int]] = {}
        self._faults: dict[tuple[int, int], str] = {}

    def add(self, rmid: int, package: int, counts: Mapping[str, float]) -> None:
        """Let a package hear what an RMID's tasks did.

        :param counts: by event, in joules, farads and whole numbers.
        """
        known = self._counted.setdefault((rmid, package), {})
        for event, count in counts.items():
            known[event] = known.get(event, 0) + int(count * (1 << FRACTION_BITS) if event in ENERGY_EVENTS else count)

    def read(self, rmids: Sequence[int], package: int, event: str) -> str:
        """What a counter file shows: the sum over the RMIDs that can be read, or why there is none."""
        every = [(rmid, package) for rmid in rmids]
        readable = [one for one in every if one in self._counted and one not in self._faults]
        if not readable:
            return self._faults.get(every[0], "Unavailable")
        total = sum(self._counted[one].get(event, 0) for one in readable)
        return _with_fraction(total) if event in ENERGY_EVENTS else str(total)

    def set_fault(self, rmid: int, package: int, text: str | None) -> None:
        """Make an RMID unreadable in one package, or readable again.

        :param text: what the files shall show, such as ``Unavailable`` or ``Error``.
        """
        if text is None:
            self._faults.pop((rmid, package), None)
        else:
            self._faults[rmid, package] = text


def grown(seconds: float, loaded: float) -> dict[str, float]:
    """What tasks make a package count. It points the right way, and predicts no real machine.

    :param seconds: CPU time.
    :param loaded: bytes from memory.
    """
    cycles = seconds * CORE_HERTZ
    misses = min(loaded / _BYTES_PER_STALL * _CYCLES_PER_MISS, 0.8 * cycles)
    hits = min(misses / _CYCLES_PER_MISS * _HITS_PER_MISS * _CYCLES_PER_HIT, 0.2 * cycles)
    return {
        "core_energy": seconds * _JOULES_PER_SECOND,
        "activity": seconds * _FARADS_PER_SECOND,
        "stalls_llc_hit": hits,
        "c1_res": 0.02 * seconds * REFERENCE_HERTZ,
        "unhalted_core_cycles": cycles,
        "stalls_llc_miss": misses,
        "c6_res": 0.0,
        "unhalted_ref_cycles": seconds * REFERENCE_HERTZ,
        "uops_retired": _UOPS_PER_CYCLE * (cycles - misses - hits),
    }


def _with_fraction(value: int) -> str:
    """A number with :data:`FRACTION_BITS` binary places as the kernel prints it (``print_event_value``)."""
    whole, fraction = divmod(value, 1 << FRACTION_BITS)
    rounded = (fraction * 10**_PLACES + (1 << FRACTION_BITS >> 1)) >> FRACTION_BITS
    return f"{whole}.{rounded:0{_PLACES}d}"
