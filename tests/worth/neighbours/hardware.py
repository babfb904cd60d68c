# SPDX-License-Identifier: Apache-2.0
"""The machines that mixes run on: sizes and times of the model, for the native library and for the guest alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine's caches and memory.

    :ivar size: bytes of the L3; ``ways`` are its ways.
    :ivar l2_bytes: of each CPU's L2; ``l2_ways`` are its ways.
    :ivar hz: cycles of a second of a mix.
    :ivar l3_cycles: that a line from the L3 takes beside its instructions; ``memory_cycles``: one from memory.
    :ivar bytes_per_cycle: of the memory channel; ``None``: it is never busy.
    """

    size: int
    ways: int
    l2_bytes: int
    l2_ways: int
    hz: float
    l3_cycles: int
    memory_cycles: int
    bytes_per_cycle: float | None = None

    @property
    def channel(self) -> float | None:
        """Bytes a second of the memory channel; ``None``: any number."""
        return None if self.bytes_per_cycle is None else self.bytes_per_cycle * self.hz

    @property
    def miss_cycles(self) -> float:
        """What a miss costs more than a hit, while no other line is on the channel."""
        moving = 0.0 if self.bytes_per_cycle is None else LINE / self.bytes_per_cycle
        return self.memory_cycles + moving - self.l3_cycles


LINE = 64

SERVER = Hardware(512 << 10, 16, 4096, 1, 1e6, 50, 225, 4.0)
"""A server, scaled, so that a mix of 85 seconds takes less than one. The cache is a 64th of a large server's, a
second is a 2 500th of one. Beside each other that is the harder case: what a cache holds is replaced 40 times more
slowly than in hardware, so effects take longer to be seen. The channel is what 3 to 6 of a mix's streaming VMs can
fill, as on a server."""

GUEST = Hardware(4 << 20, 16, 64 << 10, 16, 60e6, 80, 360)
"""The emulated ``milan-shared`` with the model's L2 set to 64 KiB; cycles are those of its performance counters
(``tests/kernel/plugin/pmu.h``)."""
