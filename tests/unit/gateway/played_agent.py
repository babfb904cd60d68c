# SPDX-License-Identifier: Apache-2.0
"""An agent that is one object: what it says of its host, and what it was told."""

from __future__ import annotations

from collections.abc import Mapping

from vmqos.local_api import contract
from vmqos.local_api.exceptions import AgentRefused

CAPACITY: contract.Capacity = {
    "ways": 9,
    "longest": 9,
    "fewest": 1,
    "classes": 15,
    "offered": [],
    "refused": [],
    "others": None,
    "held": 4,
    "traits": ["CUSTOM_B", "CUSTOM_A"],
}


def wanted(uuid: str, process: str = "1-1") -> contract.WantedFlavor:
    return {"uuid": uuid, "process": process}


class PlayedAgent:
    """Answers as :class:`vmqos.local_api.client.AgentClient` does, and as an agent keeps what it is told.

    :ivar failure: what every question ends with; ``None``: the agent answers.
    :ivar once: what its host has to give in the next answer alone.
    :ivar wants: the flavors that it wants still.
    :ivar flavors: those that it was told, by UUID.
    :ivar errors: why it was not told others, in the order in which that came.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.hostname: str | None = "node-1"
        self.capacity: contract.Capacity | None = CAPACITY
        self.once: contract.Capacity | None = None
        self.wants: list[contract.WantedFlavor] = []
        self.flavors: dict[str, Mapping[str, str]] = {}
        self.errors: list[tuple[str, str]] = []
        self.refuses: dict[str, Exception] = {}
        self.asked = 0

    def openstack(self) -> contract.OpenStack:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        capacity, self.once = self.once or self.capacity, None
        return {
            "hypervisor_hostname": self.hostname,
            "capacity": capacity,
            "flavors_wanted": [{**one} for one in self.wants],
        }

    def tell_flavor(self, wanted: contract.WantedFlavor, extra_specs: Mapping[str, str]) -> None:
        self._check(wanted)
        self.wants.remove(wanted)
        self.flavors[wanted["uuid"]] = dict(extra_specs)

    def flavor_is_not_known(self, wanted: contract.WantedFlavor, why: str) -> None:
        self._check(wanted)
        self.errors.append((wanted["uuid"], why))

    def _check(self, wanted: contract.WantedFlavor) -> None:
        if self.failure is not None:
            raise self.failure
        if wanted["uuid"] in self.refuses:
            raise self.refuses[wanted["uuid"]]
        if wanted not in self.wants:
            raise AgentRefused(text=f"the flavor of VM {wanted['uuid']} is not asked for")
