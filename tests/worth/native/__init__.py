# SPDX-License-Identifier: Apache-2.0
"""A machine with RDT for experiments that need no guest: tasks load modelled caches, and all the truth can be read.

The caches are those of the emulated CPUs (``tests/kernel/plugin``), compiled for this machine; what the tasks access is
generated, so a second of the machine takes about a second of yours, or less. Nothing is measured: each run gives the
same counts. One import builds the library, which needs a C compiler::

    from tests.worth.native import Load, Machine, Order

    with Machine(cpus=4, l3_ways=11, l3_bytes=4 << 20, evictions=True) as machine:
        victim = machine.start(Load(Order.ZIPF, 3 << 20), cpu=0, rmid=1, closid=1)
        noise = machine.start(Load(Order.ENDLESS, overlap=8), cpu=1, rmid=2, closid=2)
        for second in range(10):
            before = machine.counters(rmid=1)
            machine.run(1.0)
            now = machine.counters(rmid=1) - before
            print(now.ipc, now.occupancy, now.total_bytes, now.llc_misses, machine.evicted().get((2, 1), 0))
        machine.set_ways(1, 0x7F0)        # from here on closid 1 fills these ways, and closid 2 the others
        machine.set_ways(2, 0x00F)
        machine.run(1.0)

*The machine.* ``cpus`` are dealt out to ``sockets`` evenly, in order. Each CPU has an L2, each socket an L3 and a
channel to memory. RMIDs and CLOSIDs are numbers below ``rmids`` and 16. A mask of ways says which ways of the L3 a
class may *fill*; what it holds elsewhere stays until others take it (Intel SDM 17.19.2). At first each class may fill
all ways.

*Time.* A CPU has ``hz`` cycles a second. The default of 1e8 is forty times slower than a real one, so that a second is
cheap; nothing but the unit of time depends on it. An instruction takes one cycle. A line from the L3 takes
``l3_cycles`` more, a line from memory ``memory_cycles`` more. Each task has up to ``overlap`` lines underway at once,
and waits only for the one that is as many lines back: 1 is a task that follows pointers, 8 or more one that streams.

*The channel.* With ``bytes_per_cycle`` all CPUs of a socket share one channel to memory, which moves that many bytes a
cycle: one line after the other, in the order in which they come. A line that comes while the channel is busy waits
until those before it are through, and so does the CPU that needs it. Written lines take the channel as read ones do.
``None`` (the default): no line ever waits for another. ``set_bandwidth`` throttles a class besides (Intel's MBA).

*Sampling.* With ``sample`` = n only 1 of 2**n sets is modelled, and counts are multiplied: faster, less memory, and
right on average. It suits memory that is used page by page, and not a few hot lines.

*Accesses.* What a task accesses is what its L1 lacked. ``Load.instructions`` says how many instructions come with each
access: with 4, a task that always hits the L2 has an IPC of 1, and makes an access every 4 cycles.

*Counters* are since the machine was made; subtract two readings. Those of an RMID are what the registers of RDT and the
performance counters of a CPU say: :class:`Counters`. Of a task, :meth:`Machine.progress` tells the truth that no
counter has: how much work it did.

*Speed.* ``python -m tests.worth.native`` prints it: tens of millions of accesses a second. So a second of a CPU takes a
tenth of a second if its task waits for lines from memory most of the time, and half a second if it hits its L2.
"""

from __future__ import annotations

from tests.worth.native.machine import Counters, Load, Machine, Order, Progress, Task

__all__ = ["Counters", "Load", "Machine", "Order", "Progress", "Task"]
