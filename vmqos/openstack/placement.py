# SPDX-License-Identifier: Apache-2.0
"""Placement's requests about one resource provider, and the answers as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from vmqos.openstack.service import Service

MICROVERSION = "1.26"
"""Nested providers (1.14), a body in the answer to POST (1.20), all of an inventory reserved (1.26; Rocky)."""

REPARENTING = "1.37"
"""A provider may be given another parent (Wallaby)."""

CONFLICT = 409


class Conflict(Exception):
    """Another client changed the provider, or made it, since it was read."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """How much of a resource class a provider has; the fields are Placement's.

    :ivar total: 1 or greater.
    :ivar reserved: how much of it is not to be had, 0 to ``total``.
    :ivar min_unit: the least that one consumer may have.
    :ivar max_unit: the most that one consumer may have.
    :ivar step_size: what an amount has to be a multiple of.
    :ivar allocation_ratio: how often each unit may be given out; what is promised exclusively is given out once.
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = 1
    step_size: int = 1
    allocation_ratio: float = 1.0

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Inventory:
        """As Placement tells it."""
        return cls(**{name: value[name] for name in cls.__slots__})

    @property
    def capacity(self) -> int:
        """How many units can be allocated."""
        return int((self.total - self.reserved) * self.allocation_ratio)


@dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider.

    :ivar generation: Placement's counter of its changes; a change has to name the one that it is based on.
    :ivar parent: the UUID of the provider that it is a part of; ``None`` for a root.
    """

    uuid: str
    name: str
    generation: int
    parent: str | None


class Placement:
    """The requests; each is one round trip. All raise :class:`vmqos.openstack.exceptions.CloudError`.

    :param service: the way to Placement.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def find(self, name: str) -> Provider | None:
        """The provider of that name; names are unique in Placement."""
        answer = self._service.ask("GET", "/resource_providers", MICROVERSION, query={"name": name})
        found: list[dict[str, Any]] = answer.body["resource_providers"]
        return _provider(found[0]) if found else None

    def create(self, name: str, parent: str) -> Provider:
        """Make a provider. :raises Conflict: if there is one of that name."""
        body = {"name": name, "parent_provider_uuid": parent}
        answer = self._service.ask("POST", "/resource_providers", MICROVERSION, body=body, expected=(CONFLICT,))
        if answer.status == CONFLICT:
            raise Conflict
        return _provider(answer.body)

    def children(self, root: Provider) -> list[Provider]:
        """The providers right below a root provider."""
        answer = self._service.ask("GET", "/resource_providers", MICROVERSION, query={"in_tree": root.uuid})
        found = [_provider(value) for value in answer.body["resource_providers"]]
        return [provider for provider in found if provider.parent == root.uuid]

    def move(self, provider: Provider, parent: str, name: str = "") -> Provider:
        """Make a provider part of another one, or give it another name; what is allocated of it stays.

        :param name: its new name; its old one if empty.
        :raises Conflict: if it was changed since it was read.
        """
        body = {"name": name or provider.name, "parent_provider_uuid": parent}
        path = f"/resource_providers/{provider.uuid}"
        version = MICROVERSION if parent == provider.parent else REPARENTING
        answer = self._service.ask("PUT", path, version, body=body, expected=(CONFLICT,))
        if answer.status == CONFLICT:
            raise Conflict
        return _provider(answer.body)

    def inventories(self, provider: Provider) -> tuple[int, dict[str, Inventory]]:
        """The provider's generation, and its inventories by resource class."""
        body = self._service.ask("GET", f"/resource_providers/{provider.uuid}/inventories", MICROVERSION).body
        found = {name: Inventory.read(value) for name, value in body["inventories"].items()}
        return int(body["resource_provider_generation"]), found

    def set_inventories(self, provider: Provider, generation: int, wanted: Mapping[str, Inventory]) -> int:
        """Replace all inventories; those that are in use have to be among them.

        An inventory may be less than what is allocated of it: the allocations stay, and nothing is added to them
        (``_update_inventory_for_provider`` in placement.objects.resource_provider).

        :returns: the provider's generation.
        :raises Conflict: if it was changed since it was read.
        """
        inventories = {name: asdict(inventory) for name, inventory in wanted.items()}
        return self._change(provider, "inventories", generation, {"inventories": inventories})

    def traits(self, provider: Provider) -> tuple[int, frozenset[str]]:
        """The provider's generation, and its traits."""
        body = self._service.ask("GET", f"/resource_providers/{provider.uuid}/traits", MICROVERSION).body
        return int(body["resource_provider_generation"]), frozenset(body["traits"])

    def set_traits(self, provider: Provider, generation: int, wanted: Iterable[str]) -> int:
        """Replace all traits.

        :returns: the provider's generation.
        :raises Conflict: if it was changed since it was read.
        """
        return self._change(provider, "traits", generation, {"traits": sorted(wanted)})

    def usages(self, provider: Provider) -> dict[str, int]:
        """How much is allocated, by resource class."""
        body = self._service.ask("GET", f"/resource_providers/{provider.uuid}/usages", MICROVERSION).body
        return {name: int(amount) for name, amount in body["usages"].items()}

    def claims(self, provider: Provider) -> list[dict[str, int]]:
        """What each consumer holds of the provider, by resource class."""
        body = self._service.ask("GET", f"/resource_providers/{provider.uuid}/allocations", MICROVERSION).body
        return [dict(held["resources"]) for held in body["allocations"].values()]

    def ensure_class(self, name: str) -> None:
        """See to it that a custom resource class is known."""
        self._service.ask("PUT", f"/resource_classes/{quote(name)}", MICROVERSION)

    def ensure_trait(self, name: str) -> None:
        """See to it that a custom trait is known."""
        self._service.ask("PUT", f"/traits/{quote(name)}", MICROVERSION)

    def _change(self, provider: Provider, what: str, generation: int, body: dict[str, Any]) -> int:
        answer = self._service.ask(
            "PUT",
            f"/resource_providers/{provider.uuid}/{what}",
            MICROVERSION,
            body={"resource_provider_generation": generation, **body},
            expected=(CONFLICT,),
        )
        if answer.status == CONFLICT:
            raise Conflict
        return int(answer.body["resource_provider_generation"])


def _provider(value: Mapping[str, Any]) -> Provider:
    return Provider(value["uuid"], value["name"], int(value["generation"]), value["parent_provider_uuid"])
