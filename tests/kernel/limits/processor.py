# SPDX-License-Identifier: Apache-2.0
"""The guest's processor in a test's hands: counters that fail, who runs where, and CPUs that are switched off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.kernel.inside import msr


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
    """Switch CPUs off, the last one first, and on again, the first one first."""
    ordered = sorted(cpus)
    try:
        for cpu in reversed(ordered):
            _switch(cpu, "0")
        yield
    finally:
        for cpu in ordered:
            _switch(cpu, "1")


def _switch(cpu: int, state: str) -> None:
    Path(f"/sys/devices/system/cpu/cpu{cpu}/online").write_text(state)
