# SPDX-License-Identifier: Apache-2.0
"""What the agent answers at one moment, and the words in it that metrics need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vmqos.local_api import contract

LLC_OCCUPANCY = "llc_occupancy"
MBM_TOTAL = "mbm_total_bytes"
MBM_LOCAL = "mbm_local_bytes"

EVENTS = (LLC_OCCUPANCY, MBM_TOTAL, MBM_LOCAL)
"""The events that every VM has a value of, or a reason why not."""

NOT_MONITORED = "not-monitored"
"""Why a counter has no value where no group counts the VM."""

NO_COUNTER = "no-counter"
"""Why a counter has no value where the machine has none of that kind."""

NO_SWEEP = "no-sweep"
"""Why a counter has no value where all counters could not be read for a while."""

VMS = "vms"
CACHES = "caches"
COUNTERS = "counters"
HARDWARE_EVENTS = "hardware-events"
NEIGHBOURS = "neighbours"

PARTS = (VMS, CACHES, COUNTERS, HARDWARE_EVENTS, NEIGHBOURS)
"""The answers that a scrape can do without: where one can't be had, the others are told."""

Remote = Mapping[tuple[str, str], float]
"""Bytes to and from other sockets' memory, by UUID and cache id."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What the API answers at one moment.

    The VMs and the caches may have been told earlier: they are the same lists then, and nothing has changed since but
    the times for which something was promised.

    :ivar health: with what is known of Placement and Nova.
    :ivar telemetry: ``None`` where the counters could not be read, or not for a while.
    :ivar hardware: what the VMs' tasks execute; ``None`` where that is not known, or was not read for a while.
    :ivar neighbours: who slows whom; ``None`` where the agent is an earlier one.
    :ivar listing_age: seconds since the VMs and the caches were told.
    :ivar missing: why nothing of one of :data:`PARTS` is told, or not all of it. The agent answers that question with
        an error, or no metrics can be made of what it answers: the latter is added where they are made.
    """

    health: contract.Health
    vms: Sequence[contract.Vm]
    caches: Sequence[contract.Cache]
    telemetry: contract.Telemetry | None
    hardware: contract.HardwareEvents | None = None
    neighbours: contract.Neighbours | None = None
    listing_age: float = 0.0
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def counted(self) -> Mapping[str, contract.VmTelemetry]:
        """The counters by UUID of the VMs that the agent knows.

        A group may outlive its VM for a moment, and has no name.
        """
        told = self.telemetry["vms"] if self.telemetry is not None else {}
        return {vm["uuid"]: told[vm["uuid"]] for vm in self.vms if vm["uuid"] in told}

    def why_missing(self, uuid: str) -> dict[str, str]:
        """Why a VM's counters have no value, by event; without those that have one."""
        if self.telemetry is None:
            return dict.fromkeys(EVENTS, NO_SWEEP)
        if uuid not in self.telemetry["vms"]:
            # Where the machine counts nothing, no VM needs a group to be counted.
            counted = self.telemetry["host"].get("events", EVENTS)
            return {event: NOT_MONITORED if event in counted else NO_COUNTER for event in EVENTS}
        found = self.telemetry["vms"][uuid]["missing"]
        return {event: found[event] for event in EVENTS if event in found}
