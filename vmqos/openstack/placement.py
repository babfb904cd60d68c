# SPDX-License-Identifier: Apache-2.0
"""Placement's requests about one resource provider, and the answers as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict
from urllib.parse import quote

from msgspec import Meta

from vmqos.openstack.service import Answer, Service

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
    # Without a bound, JSON's 1e400 would be infinite.
    allocation_ratio: Annotated[float, Meta(ge=0, le=1e9)] = 1.0

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


class _ProviderAnswer(TypedDict):
    uuid: str
    name: str
    generation: int
    parent_provider_uuid: str | None


class Providers(TypedDict):
    """The answer to a question for providers."""

    resource_providers: list[_ProviderAnswer]


class Inventories(TypedDict):
    """The answer to the question for a provider's inventories."""

    resource_provider_generation: int
    inventories: dict[str, Inventory]


class _Traits(TypedDict):
    resource_provider_generation: int
    traits: list[str]


class _Generation(TypedDict):
    resource_provider_generation: int


class _Usages(TypedDict):
    usages: dict[str, int]


class Amounts(TypedDict):
    """What is held, by resource class."""

    resources: dict[str, int]


class Allocations(TypedDict):
    """The answer to a question for allocations: by consumer, or by provider."""

    allocations: dict[str, Amounts]


class Placement:
    """The requests; each is one round trip. All raise :class:`vmqos.openstack.exceptions.CloudError`.

    :param service: the way to Placement.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def find(self, name: str) -> Provider | None:
        """The provider of that name; names are unique in Placement."""
        answer = self._service.ask("GET", "/resource_providers", MICROVERSION, query={"name": name})
        found = answer.read(Providers)["resource_providers"]
        return provider_of(found[0]) if found else None

    def create(self, name: str, parent: str) -> Provider:
        """Make a provider. :raises Conflict: if there is one of that name."""
        body = {"name": name, "parent_provider_uuid": parent}
        answer = self._service.ask("POST", "/resource_providers", MICROVERSION, body=body, expected=(CONFLICT,))
        if answer.status == CONFLICT:
            raise Conflict
        return provider_of(answer.read(_ProviderAnswer))

    def children(self, root: Provider) -> list[Provider]:
        """The providers right below a root provider."""
        answer = self._service.ask("GET", "/resource_providers", MICROVERSION, query={"in_tree": root.uuid})
        found = [provider_of(value) for value in answer.read(Providers)["resource_providers"]]
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
        return provider_of(answer.read(_ProviderAnswer))

    def inventories(self, provider: Provider) -> tuple[int, dict[str, Inventory]]:
        """The provider's generation, and its inventories by resource class."""
        found = self._ask_for(provider, "inventories").read(Inventories)
        return found["resource_provider_generation"], found["inventories"]

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
        found = self._ask_for(provider, "traits").read(_Traits)
        return found["resource_provider_generation"], frozenset(found["traits"])

    def set_traits(self, provider: Provider, generation: int, wanted: Iterable[str]) -> int:
        """Replace all traits.

        :returns: the provider's generation.
        :raises Conflict: if it was changed since it was read.
        """
        return self._change(provider, "traits", generation, {"traits": sorted(wanted)})

    def usages(self, provider: Provider) -> dict[str, int]:
        """How much is allocated, by resource class."""
        return self._ask_for(provider, "usages").read(_Usages)["usages"]

    def claims(self, provider: Provider) -> list[dict[str, int]]:
        """What each consumer holds of the provider, by resource class."""
        found = self._ask_for(provider, "allocations").read(Allocations)
        return [held["resources"] for held in found["allocations"].values()]

    def ensure_class(self, name: str) -> None:
        """See to it that a custom resource class is known."""
        self._service.ask("PUT", f"/resource_classes/{quote(name)}", MICROVERSION)

    def ensure_trait(self, name: str) -> None:
        """See to it that a custom trait is known."""
        self._service.ask("PUT", f"/traits/{quote(name)}", MICROVERSION)

    def _ask_for(self, provider: Provider, what: str) -> Answer:
        return self._service.ask("GET", f"/resource_providers/{provider.uuid}/{what}", MICROVERSION)

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
        return answer.read(_Generation)["resource_provider_generation"]


def provider_of(told: _ProviderAnswer) -> Provider:
    """The provider that an answer tells."""
    return Provider(told["uuid"], told["name"], told["generation"], told["parent_provider_uuid"])
