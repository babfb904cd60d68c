# SPDX-License-Identifier: Apache-2.0
"""A compute node in Placement, as nova-compute and the scheduler see it."""

from __future__ import annotations

import uuid
from typing import Any

from tests.openstack.servers.placement import Placement
from vmqos.extra_specs.resources import LLC_OTHERS, provider_name


class ComputeNode:
    """A root provider with CPUs, and what is below it.

    :ivar hostname: its hypervisor hostname.
    """

    def __init__(self, placement: Placement, hostname: str) -> None:
        self._placement = placement
        self.hostname = hostname
        self.uuid: str = placement.ask("POST", "/resource_providers", {"name": hostname})["uuid"]
        inventories = {"VCPU": {"total": 64}, "MEMORY_MB": {"total": 4096}}
        body = {"resource_provider_generation": 0, "inventories": inventories}
        placement.ask("PUT", f"/resource_providers/{self.uuid}/inventories", body)

    @property
    def child(self) -> dict[str, Any] | None:
        """The provider of cache, as Placement has it."""
        found = self._placement.ask("GET", f"/resource_providers?name={provider_name(self.hostname)}")
        return next(iter(found["resource_providers"]), None)

    def of_child(self, what: str) -> Any:
        """Its inventories, traits or usages."""
        assert self.child is not None, f"there is no {provider_name(self.hostname)}"
        return self._placement.ask("GET", f"/resource_providers/{self.child['uuid']}/{what}")[what]

    def totals(self) -> dict[str, int]:
        """What can be had of the child's inventories, without the one that no server takes anything of."""
        found = self.of_child("inventories")
        return {name: value["total"] - value["reserved"] for name, value in found.items() if name != LLC_OTHERS}

    def candidates(self, **resources: int) -> list[dict[str, Any]]:
        """What Placement offers for a VM of one CPU on this node."""
        wanted = ",".join(f"{name}:{amount}" for name, amount in {"VCPU": 1, **resources}.items())
        path = f"/allocation_candidates?resources={wanted}&in_tree={self.uuid}"
        found: list[dict[str, Any]] = self._placement.ask("GET", path)["allocation_requests"]
        return found

    def boot(self, **resources: int) -> str:
        """Allocate as the scheduler does for a VM of one CPU; the result is the VM's UUID.

        :raises LookupError: if Placement offers nothing on this node ("No valid host").
        """
        candidates = self.candidates(**resources)
        if not candidates:
            raise LookupError(f"{self.hostname} has no {resources}")
        vm = str(uuid.uuid4())
        who = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
        self._placement.ask("PUT", f"/allocations/{vm}", {**candidates[0], **who})
        return vm

    def delete(self, vm: str) -> None:
        """Give back what a VM has."""
        self._placement.ask("DELETE", f"/allocations/{vm}")
