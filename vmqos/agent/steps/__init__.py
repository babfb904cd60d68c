# SPDX-License-Identifier: Apache-2.0
"""What each step of a pass hands on to the next one: observe, request, plan, act, judge."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, field

from vmqos.agent.observe.cache_vcpus import Vcpus
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.trial import Trial
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Allocation, Plan, Request
from vmqos.host.resctrl_state import ResctrlState


@dataclass(frozen=True, slots=True)
class Change:
    """What may have changed since the last pass.

    :ivar vms: UUIDs of VMs that were looked at anew or are gone.
    :ivar unseen: UUIDs of VMs that run and could not be looked at: they keep what they have.
    :ivar everything: whether the pass must trust nothing that was found before.
    """

    vms: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Requested:
    """What was found before the lock was taken.

    :ivar requests: what each VM's flavor asks for, by UUID.
    :ivar vcpus: the vCPUs of the VMs where they matter for the ways.
    :ivar born: UUIDs of the VMs whose threads were born, or may have got their names, since the last look at them.
    :ivar trial: what is tried on one of the VMs.
    :ivar is_cut_short: whether time ran out before the vCPUs of all VMs were looked at that may have changed.
    """

    requests: Mapping[str, FlavorRequest] = field(default_factory=dict)
    vcpus: Vcpus = field(default_factory=Vcpus)
    born: frozenset[str] = frozenset()
    trial: Trial | None = None
    is_cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """What a pass looks at once it holds the lock.

    :ivar resctrl: resctrl as it is.
    :ivar vms: the VMs that are seen to run, by UUID.
    :ivar starting: what was asked for the VMs that libvirt is starting, by UUID.
    :ivar unseen: UUIDs of the VMs that keep what they have although they are not found, and names of classes that do.
    :ivar look_at: UUIDs of the VMs whose tasks may have changed.
    :ivar is_calm: whether a plan would say what the last one said, unless one of these VMs has changed.
    """

    resctrl: ResctrlState
    vms: Mapping[str, ObservedVm]
    starting: Mapping[str, Request]
    unseen: frozenset[str]
    look_at: set[str]
    is_calm: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """What the planner was asked for, and what it answered.

    :ivar plan: what each VM gets, and the steps that give it.
    :ivar requests: what the planner was asked for.
    :ivar parted: UUIDs of VMs whose tasks stay where they are: those whose flavor is not known now and whose tasks are
        in two groups, and those whose vCPUs have no names yet.
    :ivar waiting: UUIDs of VMs for which something failed a short time ago, and other keys of failures. The planner was
        asked for what these VMs have, and not for what their flavors say, even if their time has come since.
    """

    plan: Plan
    requests: tuple[Request, ...]
    parted: frozenset[str]
    waiting: Set[Hashable]


@dataclass(frozen=True, slots=True)
class Acted:
    """What became of a plan.

    :ivar records: the VMs' records, with the places where their tasks are.
    :ivar in_force: the part of its allocation that each VM really has now, by UUID.
    :ivar is_complete: whether nothing failed.
    :ivar is_rest_possible: whether the failure concerns some VMs only, so that a pass without them gets further.
    """

    records: Mapping[str, VmRecord]
    in_force: Mapping[str, Allocation]
    is_complete: bool
    is_rest_possible: bool
