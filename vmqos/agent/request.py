# SPDX-License-Identifier: Apache-2.0
"""The second step of a pass: what each VM's flavor asks for, and what the agent asks the planner for that VM."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from vmqos.agent import keep_current, trial
from vmqos.agent.observe import flavor_request
from vmqos.agent.observe.flavor_request import FlavorRequest
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.told_flavors import Found, ToldFlavors
from vmqos.agent.snapshot import CacheTopology
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Request, caches
from vmqos.daemon.log_once import LogOnce
from vmqos.extra_specs import CacheRequest
from vmqos.host.resctrl_state import ResctrlState


def of_flavors(vms: Mapping[str, ObservedVm], flavors: ToldFlavors | None, once: LogOnce) -> dict[str, FlavorRequest]:
    """What the flavors ask for, by the VMs' UUIDs.

    :param flavors: knows the flavors that the VMs' descriptions lack; ``None`` where Nova is not asked.
    :param once: knows what was logged already.
    """
    found: Mapping[str, Found] = {}
    if flavors is not None:
        found = flavors.look_up([observed.vm for observed in vms.values() if lacks_specs(observed)])
    requests = {}
    for uuid, observed in vms.items():
        try:
            requests[uuid] = flavor_request.read(observed.vm, found.get(uuid))
        except Exception as error:
            unknown = requests[uuid] = flavor_request.unreadable(error)
            once.log(logging.ERROR, ("wish", uuid), "VM %s: %s", uuid, unknown.unknown, error=error)
    return requests


def lacks_specs(observed: ObservedVm) -> bool:
    """Whether Nova made a VM and did not write the extra specs of its flavor into the metadata."""
    metadata = observed.vm.metadata
    return metadata is not None and metadata.extra_specs is None


def of_the_planner(
    resctrl: ResctrlState, records: Iterable[VmRecord], topology: CacheTopology, waiting: Container[object] = ()
) -> list[Request]:
    """The requests to the planner for all VMs whose flavors ask for something that the agent can arrange now.

    Where something failed for a VM a short time ago, the request names what the VM has, until the agent tries again.

    :param waiting: UUIDs of these VMs.
    """
    requests = []
    for record in records:
        wants = record.request.wants
        if wants is None or record.request.hands_off or (record.vcpus is not None and not record.vcpus.present):
            continue
        reach = _reach(resctrl, record, wants, topology)
        whole = Request(record.uuid, wants, reach, record.observed.vm.process.start_time)
        if (place := trial.kept_place(record.request, whole)) is not None:
            requests.append(place)
        if record.uuid in waiting:
            kept = keep_current.of_failed(resctrl, record, wants, reach)
            if kept is None:
                continue
            wants = kept
        requests.append(replace(whole, wants=wants))
    return requests


def _reach(resctrl: ResctrlState, record: VmRecord, wants: CacheRequest, topology: CacheTopology) -> frozenset[int]:
    """The caches that the VM can run on: at least one L3, and the L2s of the CPUs that its vCPUs are pinned to."""
    every_l3 = frozenset(resctrl.capabilities.l3_caches) or frozenset({0})
    reach = topology.caches_of(record.cpus) & every_l3 or every_l3
    if wants.l2_ways is None:
        return reach
    return reach | {caches.l2(core) for core in topology.cores_of(record.affinities)}
