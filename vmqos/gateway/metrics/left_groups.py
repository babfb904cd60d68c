# SPDX-License-Identifier: Apache-2.0
"""What VMs counted in groups that they have left, so that their counters do not go back.

While ways of its own are tried on a VM, or only some of its vCPUs have ways, two groups count it, and the agent tells
their sum. When the VM has left one of them, what was counted there is gone from the sum. A monitoring system takes a
counter that went back for one that began anew, and would show the whole of the other group's as a burst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from vmqos.gateway.metrics.agent_answers import LLC_OCCUPANCY
from vmqos.local_api import contract

Key = tuple[str, ...]
"""Where a counter stands in what is told of a VM."""


def are_of_one_vm(generation: str, other: str) -> bool:
    """Whether one of the groups that counted a VM then still does; else its counters began anew.

    :param generation: as the agent tells it, which is that of both groups where there are two.
    """
    return not set(generation.split("+")).isdisjoint(other.split("+"))


class LeftGroups:
    """Adds to the VMs' counters what they had counted in groups that the VMs have left.

    :ivar last: the generation and the number of each counter when it last had one, of VMs that have or had two groups.
    :ivar left: what is to be added to each counter of these VMs.
    """

    def __init__(self) -> None:
        self.last: dict[str, dict[Key, tuple[str, float]]] = {}
        self.left: dict[str, dict[Key, float]] = {}

    def update(self, vms: Mapping[str, contract.VmTelemetry]) -> Mapping[str, contract.VmTelemetry]:
        """The VMs with what is to be added; VMs that are gone are forgotten.

        :param vms: by UUID.
        """
        for gone in self.last.keys() - vms.keys():
            del self.last[gone], self.left[gone]
        return {uuid: self._with_what_it_left(uuid, vm) for uuid, vm in vms.items()}

    def _with_what_it_left(self, uuid: str, vm: contract.VmTelemetry) -> contract.VmTelemetry:
        generation = vm.get("generation", "")
        if uuid not in self.last and "+" not in generation:
            return vm
        last, left = self.last.setdefault(uuid, {}), self.left.setdefault(uuid, {})
        for key, value in _counters(cast(Mapping[str, Any], vm)):
            then, count = last.get(key, (generation, value))
            if not are_of_one_vm(then, generation):
                left.pop(key, None)
            elif value < count and then != generation:
                left[key] = left.get(key, 0.0) + count - value
            elif value < count:
                # The agent was started anew, and with it what VMs count that take turns, and what packages count.
                left.pop(key, None)
            last[key] = generation, value
        return cast(contract.VmTelemetry, _added(cast(Mapping[str, Any], vm), left)) if left else vm


def _counters(told: Mapping[str, Any], where: Key = ()) -> Iterator[tuple[Key, float]]:
    """Each counter that has a number."""
    for name in ("caches", "nodes", "packages") if not where else told:
        inside = told.get(name)
        if isinstance(inside, Mapping):
            yield from _counters(inside, (*where, name))
        elif inside is not None and name != LLC_OCCUPANCY:
            yield (*where, name), inside


def _added(told: Mapping[str, Any], left: Mapping[Key, float], where: Key = ()) -> dict[str, Any]:
    """What is told of a VM, with what the VM had counted in groups that it has left added to its counters."""
    found = dict(told)
    for name in ("caches", "nodes", "packages") if not where else told:
        inside, key = told.get(name), (*where, name)
        if isinstance(inside, Mapping):
            found[name] = _added(inside, left, key)
        elif inside is not None and key in left:
            found[name] = inside + left[key]
    return found
