# SPDX-License-Identifier: Apache-2.0
"""The second step of a pass: what each VM's flavor asks for, as far as it can be read and acted on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vmqos import extra_specs
from vmqos.agent.observe.running_vms import ObservedVm, unexpected
from vmqos.agent.observe.told_flavors import Found, ToldFlavors
from vmqos.daemon.log_once import LogOnce
from vmqos.extra_specs import CacheRequest
from vmqos.hypervisor.model import VirtualMachine
from vmqos.reason import NO_REASON, Code, Reason, joined

NO_EXTRA_SPECS = Reason(
    Code.NO_EXTRA_SPECS,
    "Nova wrote no extra specs into the domain XML, as it does from 2025.2 on: hard-reboot the VM after the upgrade, "
    "or set [nova] to have its API asked",
)
CACHETUNE = Reason(Code.CACHETUNE, "libvirt placed this VM by cachetune or memorytune: vmqos leaves it alone")


@dataclass(frozen=True, slots=True)
class FlavorRequest:
    """What one VM's flavor asks for, as far as the agent can act on it.

    :ivar wants: what the planner is to arrange; ``None`` where there is nothing to arrange.
    :ivar asked: what the flavor asks for, also where nothing is arranged; ``None`` where it asks for nothing.
    :ivar problem: why not all of it is acted on; empty where all is. A VM with a problem is degraded at best.
    :ivar unknown: why it is not known (yet) what the flavor asks for; empty where it is. The VM keeps what it has.
    :ivar remark: what an operator should know of a VM that asks for nothing; empty where there is nothing.
    :ivar hands_off: whether libvirt placed the VM's tasks, so that the agent leaves them alone.
    :ivar trial: which limit, or how many ways, are tried on the VM, and are in ``wants`` too; empty where none are.
    """

    wants: CacheRequest | None = None
    asked: CacheRequest | None = None
    problem: Reason = NO_REASON
    unknown: Reason = NO_REASON
    remark: Reason = NO_REASON
    hands_off: bool = False
    trial: Reason = NO_REASON

    @property
    def follows_vcpus(self) -> bool:
        """Whether the ways follow single vCPUs: those that the flavor names, or each vCPU to the L2 of its core."""
        if self.wants is None or self.hands_off:
            return False
        return self.wants.vcpus is not None or self.wants.l2_ways is not None

    @property
    def is_trial_alone(self) -> bool:
        """Whether the flavor asks for nothing, and a trial does."""
        return bool(self.trial) and self.asked is None

    def but(self, problem: Reason) -> FlavorRequest:
        """The request with this problem added; the request itself where the problem is empty."""
        return replace(self, problem=joined(self.problem, problem)) if problem else self


def read_all(vms: Mapping[str, ObservedVm], flavors: ToldFlavors | None, once: LogOnce) -> dict[str, FlavorRequest]:
    """What the flavors ask for, by the VMs' UUIDs. A VM whose flavor can't be read keeps what it has.

    :param flavors: knows the flavors that the VMs' descriptions lack; ``None`` where Nova is not asked.
    :param once: knows what was logged already.
    """
    found: Mapping[str, Found] = {}
    if flavors is not None:
        found = flavors.look_up([observed.vm for observed in vms.values() if lacks_specs(observed)])
    requests = {}
    for uuid, observed in vms.items():
        try:
            requests[uuid] = read(observed.vm, found.get(uuid))
        except Exception as error:
            unknown = unexpected("reading what its flavor asks for", error)
            requests[uuid] = FlavorRequest(unknown=unknown)
            once.log(logging.ERROR, ("wish", uuid), "VM %s: %s", uuid, unknown, error=error)
    return requests


def lacks_specs(observed: ObservedVm) -> bool:
    """Whether Nova made a VM and did not write the extra specs of its flavor into the metadata."""
    metadata = observed.vm.metadata
    return metadata is not None and metadata.extra_specs is None


def read(vm: VirtualMachine, found: Found | None = None) -> FlavorRequest:
    """Read the extra specs in the VM's metadata.

    :param found: what Nova's API says of the flavor, where the metadata lack the extra specs; ``None`` where Nova is
        not asked.
    """
    bad_metadata = Reason(Code.BAD_METADATA, vm.metadata_error) if vm.metadata_error else NO_REASON
    if vm.metadata is None:
        request = FlavorRequest(problem=bad_metadata)
    elif vm.metadata.extra_specs is not None:
        request = _of_specs(vm, vm.metadata.flavor, vm.metadata.extra_specs)
    elif found is None:
        request = FlavorRequest(problem=bad_metadata, remark=NO_EXTRA_SPECS)
    elif found.extra_specs is not None:
        request = _of_specs(vm, vm.metadata.flavor, found.extra_specs)
    else:
        missing = "Nova's API has not told what the flavor asks for, and the domain XML does not say"
        text = f"{missing}: {found.error}" if found.error else missing
        request = FlavorRequest(problem=bad_metadata, unknown=Reason(Code.FLAVOR_UNKNOWN, text))
    if vm.has_cachetune:
        if request.asked is None and not request.problem:
            return FlavorRequest(remark=CACHETUNE, hands_off=True)
        return FlavorRequest(asked=request.asked, problem=joined(CACHETUNE, request.problem), hands_off=True)
    return request


def _of_specs(vm: VirtualMachine, flavor: str, specs: Mapping[str, str]) -> FlavorRequest:
    parsed = extra_specs.parse(specs)
    problems = [vm.metadata_error] if vm.metadata_error else []
    problems += [str(error) for error in parsed.errors]
    if problems:
        problem = Reason(Code.BAD_FLAVOR, f"flavor {flavor}: {'; '.join(problems)}")
        return FlavorRequest(asked=parsed.request, problem=problem)
    return FlavorRequest(wants=parsed.request, asked=parsed.request)
