# SPDX-License-Identifier: Apache-2.0
"""Hosts and histories made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vmqos.insight import Cache, Counts, History, Host, LimitedIn, Sample, Vm

MIB = 1 << 20
SIZE, WAYS = 32 * MIB, 16
ALL = 0xFFFF
LIMIT = 40e9
"""Bytes a second of the host's memory."""
INSTRUCTIONS = 1e9


@dataclass(frozen=True, slots=True)
class Did:
    """What one VM did in one second; ratios for 1 000 instructions."""

    held: float = 4 * MIB
    moved: float = 1e8
    cycles: float = 1000.0
    references: float = 20.0
    misses: float = 0.2
    ran: float | None = None

    def sample(self, time: float, pmu: bool) -> Sample:
        """As a sample."""
        part = INSTRUCTIONS / 1000
        counts = Counts(self.cycles * part, INSTRUCTIONS, self.references * part, self.misses * part)
        return Sample(time, {0: self.held}, self.moved, counts if pmu else None, self.ran)


def host(vms: Mapping[str, int], limit: float | None = LIMIT, flavor: str = "m1") -> Host:
    """One socket that limits bandwidth in per cent; by VM, the mask of its ways."""
    known = {vm: Vm(flavor, {0: mask}) for vm, mask in vms.items()}
    return Host({0: Cache(SIZE, WAYS, limit)}, known, limited_in=LimitedIn.PERCENT)


def history(seconds: int, pmu: bool = True, **vms: Callable[[int], Did]) -> History:
    """By VM, what it did in each second."""
    return {vm: [did(second).sample(float(second), pmu) for second in range(seconds)] for vm, did in vms.items()}


def step(before: Did, after: Did, at: int) -> Callable[[int], Did]:
    """One thing, and from a second on another."""
    return lambda second: after if second >= at else before


def turns(first: Did, second: Did, bounds: Sequence[int]) -> Callable[[int], Did]:
    """Two things in turns, the second one from the first bound on."""
    return lambda now: second if sum(now >= bound for bound in bounds) % 2 else first
