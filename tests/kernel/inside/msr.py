# SPDX-License-Identifier: Apache-2.0
"""Registers of the guest's CPUs, through ``/dev/cpu/N/msr``: RDT's, and the plugin's own that inject faults.

A register of a cache is the same on all CPUs of that cache; ``cpu`` says whose cache is meant.
"""

from __future__ import annotations

import os

# Intel SDM volume 4, table 2-2; AMD APM volume 2, 19.
IA32_L3_QOS_CFG = 0xC81
IA32_L2_QOS_CFG = 0xC82
IA32_QM_EVTSEL = 0xC8D
IA32_QM_CTR = 0xC8E
IA32_PQR_ASSOC = 0xC8F
IA32_L3_QOS_MASK_0 = 0xC90
IA32_L2_QOS_MASK_0 = 0xD10
IA32_L2_QOS_EXT_BW_THRTL_0 = 0xD50
MSR_MBA_BW_BASE = 0xC0000200
MSR_QOS_MBM_EVT_CFG_0 = 0xC0000400

# The plugin's own (tests/kernel/plugin/control.c).
SAY_UNAVAILABLE = 0x52440001
SAY_ERROR = 0x52440002
SAY_NUMBERS = 0x52440003
ADD_TRAFFIC = 0x52440004
SET_OCCUPANCY = 0x52440005
MARK = 0x52440010

_MARKED = 1 << 63
"""A mark was left; the other bits are IA32_PQR_ASSOC as it was then."""


def read(cpu: int, register: int) -> int:
    """Read a register."""
    with open(f"/dev/cpu/{cpu}/msr", "rb", buffering=0) as file:
        return int.from_bytes(os.pread(file.fileno(), 8, register), "little")


def write(cpu: int, register: int, value: int) -> None:
    """Write a register."""
    with open(f"/dev/cpu/{cpu}/msr", "wb", buffering=0) as file:
        os.pwrite(file.fileno(), value.to_bytes(8, "little"), register)


def say_unavailable(cpu: int, rmid: int) -> None:
    """Have the counters of ``rmid`` in this CPU's cache say "Unavailable"."""
    write(cpu, SAY_UNAVAILABLE, rmid)


def say_error(cpu: int, rmid: int) -> None:
    """Have the counters of ``rmid`` in this CPU's cache say "Error"."""
    write(cpu, SAY_ERROR, rmid)


def say_numbers(cpu: int, rmid: int) -> None:
    """Have the counters of ``rmid`` give numbers again; after "Unavailable" the traffic counts from 0."""
    write(cpu, SAY_NUMBERS, rmid)


def add_traffic(cpu: int, rmid: int, size: int) -> None:
    """Add ``size`` bytes to the total and the local traffic of ``rmid`` in this CPU's cache."""
    write(cpu, ADD_TRAFFIC, rmid << 48 | size)


def set_occupancy(cpu: int, rmid: int, size: int) -> None:
    """Set the bytes that ``rmid`` holds in this CPU's cache."""
    write(cpu, SET_OCCUPANCY, rmid << 48 | size)


def mark(value: int) -> None:
    """Leave a mark in the plugin's log, to be found in the result's ``msr``."""
    write(0, MARK, value)


def forget_mark(cpu: int) -> None:
    """Have this CPU forget that it has left a mark."""
    write(cpu, MARK, 0)


def class_at_mark(cpu: int) -> int | None:
    """The CLOSID that this CPU had when it left its last mark, a VM's mark too; ``None`` where it has left none."""
    value = read(cpu, MARK)
    return (value & ~_MARKED) >> 32 if value & _MARKED else None
