# SPDX-License-Identifier: Apache-2.0
"""What the agent asks the planner for: the part of the flavors' promises that can be arranged now."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from vmqos.agent import keep_current, trial
from vmqos.agent.vm_record import VmRecord
from vmqos.allocation import Request, caches
from vmqos.host.resctrl_state import ResctrlState
from vmqos.resctrl.topology import CacheTopology


def make(
    resctrl: ResctrlState,
    records: Iterable[VmRecord],
    topology: CacheTopology,
    waiting: Container[object] = (),
    granted: Mapping[str, Mapping[int, int]] | None = None,
) -> list[Request]:
    """The requests for all VMs whose flavors ask for something that the agent can arrange now.

    Where something failed for a VM a short time ago, the request names what the VM has, until the agent tries again.

    :param waiting: UUIDs of these VMs.
    :param granted: how many ways earlier plans granted to each group, by cache.
    """
    requests = []
    every_l3 = frozenset(resctrl.capabilities.l3_caches) or frozenset({0})
    for record in records:
        wants = record.request.wants
        if wants is None or record.request.hands_off or (record.vcpus is not None and not record.vcpus.present):
            continue
        # The caches that it can run on: at least one L3, and the L2s of the CPUs that its vCPUs are pinned to.
        reach = topology.caches_of(record.cpus) & every_l3 or every_l3
        if wants.l2_ways is not None:
            reach |= {caches.l2(core) for core in topology.cores_of(record.affinities)}
        whole = Request(record.uuid, wants, reach, record.observed.vm.process.start_time)
        if record.request.trial and (place := trial.kept_place(record.request, whole)) is not None:
            requests.append(place)
        if record.uuid in waiting:
            kept = keep_current.of_failed(resctrl, record, whole, granted or {})
            if kept is None:
                continue
            whole = kept
        requests.append(whole)
    return requests
