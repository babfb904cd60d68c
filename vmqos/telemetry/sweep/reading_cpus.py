# SPDX-License-Identifier: Apache-2.0
"""Reading counters on the very CPU that the kernel reads them on.

Wherever the reader runs, the kernel reads a cache's counter on a CPU of that cache, and the reader waits for it: on any
of its CPUs, on the reader's own if that is one of them, until Linux 6.8; on the first one that keeps its tick since
(``mon_event_read`` and ``cpumask_any_housekeeping``). For a reader on that CPU each counter is two switches between
tasks. For any other reader it is two interrupts and as many idle CPUs to wake: three to four times as long.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from vmqos.resctrl import topology

NO_TICK = "nohz_full"


def by_cache(sysfs_cpu: str = topology.SYSFS_CPU) -> dict[int, int]:
    """The CPU on which the kernel reads the counters of each L3, by cache id."""
    tickless = _tickless(f"{sysfs_cpu}/{NO_TICK}")
    return {cache: min(cpus - tickless or cpus) for cache, cpus in topology.l3_of_cpus(sysfs_cpu).items()}


@contextmanager
def travelling() -> Iterator[Callable[[int | None], None]]:
    """Let the calling thread go to one CPU after the other, and back to all of its own at the end.

    It goes nowhere that it may not run anyway: who confines it (``taskset``, ``CPUAffinity=``, a cpuset) is obeyed.

    :returns: what takes it to a CPU; ``None`` leaves it where it is.
    """
    home = os.sched_getaffinity(0)
    back = _with_those_offline(home)
    away = False

    def go(cpu: int | None) -> None:
        nonlocal away
        if cpu in home and len(home) > 1:
            away = True
            # The CPU may have gone offline just now. It is a matter of time spent only.
            with suppress(OSError):
                os.sched_setaffinity(0, {cpu})

    try:
        yield go
    finally:
        if away:
            with suppress(OSError):
                os.sched_setaffinity(0, back)


def _with_those_offline(home: set[int]) -> set[int]:
    """The CPUs of a thread that may run on all CPUs that are online, with those that are not.

    The kernel does not tell whether it may run on these (``sched_getaffinity`` in kernel/sched/syscalls.c). Without
    them it would be confined to the others for ever, also once they are online. Any other thread keeps its CPUs.
    """
    if len(home) < os.sysconf("SC_NPROCESSORS_ONLN"):
        return home
    return home.union(range(os.sysconf("SC_NPROCESSORS_CONF")))


def _tickless(path: str) -> frozenset[int]:
    try:
        return topology.parse_cpu_list(topology.read_page(path))
    except ValueError:
        # No such file, or "(null)": there are none.
        return frozenset()
