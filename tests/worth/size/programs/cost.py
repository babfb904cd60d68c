# SPDX-License-Identifier: Apache-2.0
"""What it costs a VM that it is sized: how much longer its work took than it would have taken otherwise.

Two times can't be compared by the work that is done in a cycle, as native loads are. The clocks of the VM and of the
host tick by the second, and an emulated processor does a hundredth of a server's work between two ticks, and less when
the machine below is busy. So the same program had 0.34 to 0.47 instructions in a cycle with the same number of ways,
from one half second to the next.

So a VM is held against itself in the same time. The stack distances of what it accessed while it was tried say what it
would have missed of the same accesses with the ways that it is promised. What the distances are wrong by is taken off:
it is seen in the time before, in which the VM had these ways. What the kernel did more in a second than before, on the
VM's CPU, comes on top. It is weighed against a server's second, for that too goes by the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.kernel.cachemodel import switch
from tests.kernel.cachemodel.counts import Counts, Curve
from tests.kernel.inside import msr
from tests.worth.cost import INSTRUCTION_NS
from tests.worth.neighbours.hardware import GUEST

ANY_CPU = 0
"""Of the one socket there is. Another one than the VM's, which is not to be interrupted."""
SERVER_HZ = 1e9 / INSTRUCTION_NS
"""Cycles of a server's second."""
SELECT, COUNTER = 0xC0010200, 0xC0010201
"""A counter of AMD's and what selects its event; two more for each further one (``tests/kernel/plugin/pmu.h``)."""
OF_KERNEL = 1 << 17 | 1 << 22
"""Count in ring 0 only; enabled."""
INSTRUCTIONS, CYCLES = (4, 0xC0), (5, 0x76)
"""Counters that perf takes last, and their events."""


@dataclass(frozen=True, slots=True)
class Done:
    """What was counted of a VM: so far, or in some time.

    :ivar seconds: of the host's clock.
    :ivar curve: its accesses to the L3, by stack distance.
    :ivar kernel_instructions: of the host's kernel and the VM's, on the VM's CPU.
    :ivar kernel_cycles: that these took.
    """

    seconds: float
    counts: Counts
    curve: Curve
    kernel_instructions: int
    kernel_cycles: int

    def __sub__(self, before: Done) -> Done:
        """What was counted since."""
        return Done(
            self.seconds - before.seconds,
            self.counts - before.counts,
            self.curve - before.curve,
            self.kernel_instructions - before.kernel_instructions,
            self.kernel_cycles - before.kernel_cycles,
        )


def count_kernel(cpu: int) -> None:
    """Have the CPU count what :func:`done` reads of the kernel."""
    for number, event in (INSTRUCTIONS, CYCLES):
        msr.write(cpu, SELECT + 2 * number, event | OF_KERNEL)


def done(cpu: int, rmid: int) -> Done:
    """What was counted so far of a VM.

    :param cpu: that the VM has for itself.
    """
    counts, curve = switch.counts(ANY_CPU, rmid), switch.curve(ANY_CPU, rmid, GUEST.ways)
    kernel = (msr.read(cpu, COUNTER + 2 * number) for number, _ in (INSTRUCTIONS, CYCLES))
    return Done(time.monotonic(), counts, curve, *kernel)


def cost(before: Done, during: Done, ways: int) -> float:
    """By what part the VM did less while it was tried than if nobody had asked; less than 0 if it did more.

    :param before: what it did in some time before, with the ways that it is promised.
    :param ways: how many these are.
    """
    longer = _longer(during, ways) / _longer(before, ways)
    more = during.kernel_instructions / during.seconds - before.kernel_instructions / before.seconds
    return 1 - 1 / longer + max(0.0, more) * before.kernel_cycles / before.kernel_instructions / SERVER_HZ


def cycles(counts: Counts) -> float:
    """How long it took, by the weights of the machine's performance counters (``tests/kernel/plugin/pmu.h``)."""
    lines = counts.data + counts.fetch
    return _cycles(counts.instructions, lines.l3 + lines.memory, lines.memory)


def _longer(done: Done, ways: int) -> float:
    """How many times as long it took as it would have with so many ways, by its stack distances."""
    lines = done.counts.data + done.counts.fetch
    references = lines.l3 + lines.memory
    missed = references * done.curve.misses(ways) / done.curve.accesses
    return cycles(done.counts) / _cycles(done.counts.instructions, references, missed)


def _cycles(instructions: int, references: int, missed: float) -> float:
    return instructions + GUEST.l3_cycles * references + (GUEST.memory_cycles - GUEST.l3_cycles) * missed
