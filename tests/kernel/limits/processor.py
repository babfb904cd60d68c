# SPDX-License-Identifier: Apache-2.0
"""The guest's processor in a test's hands: counters that fail, who runs where, and CPUs that are switched off."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.kernel.inside import msr
from vmqos.resctrl import mount, topology

LOOK = 1.0
"""Seconds between two looks of the kernel into limbo, and at the bandwidth counters (``CQM_LIMBOCHECK_INTERVAL``,
``MBM_OVERFLOW_INTERVAL``)."""

LONG_AGO = 0.6 * LOOK
"""After so long, the time that is left until the next look is too short to count on."""


@contextlib.contextmanager
def unavailable(cpu: int, rmid: int) -> Iterator[None]:
    """Have the counters of an RMID say "unavailable" (bit 62 of IA32_QM_CTR) on the CPU's cache.

    Afterwards its bandwidth counters begin at 0 again, as those of a processor that had lost track of the RMID.
    """
    with _fault(cpu, msr.SAY_UNAVAILABLE, rmid):
        yield


@contextlib.contextmanager
def error(cpu: int, rmid: int) -> Iterator[None]:
    """Have the counters of an RMID say "error" (bit 63 of IA32_QM_CTR) on the CPU's cache."""
    with _fault(cpu, msr.SAY_ERROR, rmid):
        yield


@contextlib.contextmanager
def _fault(cpu: int, control: int, rmid: int) -> Iterator[None]:
    msr.write(cpu, control, rmid)
    try:
        yield
    finally:
        msr.say_numbers(cpu, rmid)


def association(cpu: int) -> tuple[int, int]:
    """CLOSID and RMID of what runs on a CPU."""
    value = msr.read(cpu, msr.IA32_PQR_ASSOC)
    return value >> 32, value & 0x3FF


@contextlib.contextmanager
def offline(cpus: Iterable[int]) -> Iterator[None]:
    """Switch CPUs of one cache off, and on again, the first one first.

    If the kernel begins to look at the counters of a cache while the cache's last CPU goes, it waits, and then works on
    what was freed: the guest hangs. (``cqm_handle_limbo`` and ``mbm_handle_overflow``, whose work is not waited for
    when the cache goes; reported in May 2026 with "Track reference count for L3 monitor domains".) So the last one goes
    when the kernel has just looked, and will not for most of a second.
    """
    ordered = sorted(cpus)
    try:
        for cpu in ordered:
            if {cpu} in topology.l3_of_cpus().values():
                if cpu == ordered[0]:
                    _let_the_kernel_look(cpu)
                else:
                    # It looks from the first CPU, and when that goes at once from another (resctrl_offline_cpu).
                    began = time.monotonic()
                    time.sleep(0.3 * LOOK)
                    if time.monotonic() - began > LONG_AGO:
                        _let_the_kernel_look(cpu)
            _switch(cpu, "0")
        yield
    finally:
        for cpu in ordered:
            _switch(cpu, "1")


def _let_the_kernel_look(cpu: int) -> None:
    """Return when the kernel has just looked at the counters of a cache with this CPU alone, if nobody else does.

    Nobody holds anything of a cache that goes, so nothing of it need stay in limbo, and what remains is the look at the
    bandwidth.
    """
    for rmid in range(int(Path(mount.DEFAULT_PATH, "info/L3_MON/num_rmids").read_text())):
        msr.set_occupancy(cpu, rmid, 0)
    time.sleep(1.2 * LOOK)
    no_event = 0
    while True:
        before = time.monotonic()
        deadline = before + 2 * LOOK
        msr.write(cpu, msr.IA32_QM_EVTSEL, no_event)
        while (asked := time.monotonic()) < deadline and msr.read(cpu, msr.IA32_QM_EVTSEL) == no_event:
            before = asked
            time.sleep(0.01)
        time.sleep(0.1 * LOOK)
        # Where this guest has stood still meanwhile, the next look may be near.
        if time.monotonic() - before < LONG_AGO:
            return


def _switch(cpu: int, state: str) -> None:
    Path(f"/sys/devices/system/cpu/cpu{cpu}/online").write_text(state)
