# SPDX-License-Identifier: Apache-2.0
"""Counters of VMs: what each VM holds of the caches and moves to and from memory.

It stands on :mod:`vmqos.resctrl` alone. A VM is found by its group's name, so a reader needs neither the agent nor
libvirt, and no rights but to read the files::

    with Sweeper() as sweeper:
        for vm in sweeper.sweep().vms.values():
            print(vm.uuid, vm.totals["llc_occupancy"])
"""

from vmqos.telemetry.bandwidth import RateColumns, Rates, rate, rate_columns, rates
from vmqos.telemetry.model import EVENTS, GroupReading, HostReading, Missing, Reading, Snapshot, VmReading
from vmqos.telemetry.sweep.sweeper import Sweeper

__all__ = [
    "EVENTS",
    "GroupReading",
    "HostReading",
    "Missing",
    "RateColumns",
    "Rates",
    "Reading",
    "Snapshot",
    "Sweeper",
    "VmReading",
    "rate",
    "rate_columns",
    "rates",
]
