# SPDX-License-Identifier: Apache-2.0
"""What consumers hold in Placement, and changing that without taking from them what others gave them meanwhile.

A consumer is a server, by its UUID, or a migration of a server, by the migration's: as long as a resize or a cold
migration is under way, the migration holds what the server has on the host that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from vmqos.openstack.placement import (
    CONFLICT,
    Allocations,
    Conflict,
    Inventories,
    Inventory,
    Provider,
    Providers,
    provider_of,
)
from vmqos.openstack.service import Answer, Service

MICROVERSION = "1.28"
"""Consumers have a generation, and a PUT may leave them nothing (Rocky). A consumer keeps its type (1.38) in a PUT that
does not name one."""

CONCURRENT = "placement.concurrent_update"
"""The code of a 409 that another change caused; a 409 for want of room has another one."""

Held = Mapping[str, Mapping[str, int]]
"""Amounts by the provider's UUID and the resource class."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a consumer holds.

    :ivar held: everything that it holds.
    :ivar generation: Placement's counter of its changes; ``None`` where it holds nothing: there is no such consumer.
    :ivar project: the UUID of the project that it belongs to.
    :ivar user: the UUID of the user that it belongs to.
    """

    uuid: str
    held: Held = field(default_factory=dict)
    generation: int | None = None
    project: str = ""
    user: str = ""


class NoRoom(Exception):
    """A provider can't give what a consumer would hold; the message is Placement's."""


class _ConsumerAnswer(Allocations):
    consumer_generation: int | None
    project_id: str
    user_id: str


class Consumers:
    """The requests; each is one round trip. All raise :class:`vmqos.openstack.exceptions.CloudError`.

    :param service: the way to Placement.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def providers(self) -> list[Provider]:
        """All providers of the cloud."""
        found = self._get("/resource_providers").read(Providers)
        return [provider_of(told) for told in found["resource_providers"]]

    def inventories(self, provider: str) -> dict[str, Inventory]:
        """The inventories of a provider, by resource class; none where there is no such provider."""
        answer = self._ask_for(provider, "inventories")
        if answer.status != 200:
            return {}
        return answer.read(Inventories)["inventories"]

    def of_provider(self, provider: str) -> dict[str, dict[str, int]]:
        """What consumers hold of a provider, by consumer and resource class; nothing where there is no provider."""
        answer = self._ask_for(provider, "allocations")
        if answer.status != 200:
            return {}
        found = answer.read(Allocations)["allocations"]
        return {consumer: amounts["resources"] for consumer, amounts in found.items()}

    def get(self, uuid: str) -> Consumer:
        """What a consumer holds."""
        answer = self._get(f"/allocations/{quote(uuid)}")
        if not answer.read(Allocations)["allocations"]:
            return Consumer(uuid)
        found = answer.read(_ConsumerAnswer)
        held = {provider: amounts["resources"] for provider, amounts in found["allocations"].items()}
        return Consumer(uuid, held, found["consumer_generation"], found["project_id"], found["user_id"])

    def replace(self, consumer: Consumer, held: Held) -> None:
        """Have a consumer hold this instead of all that it held.

        :param consumer: as :meth:`get` told it.
        :raises vmqos.openstack.placement.Conflict: if the consumer or a provider was changed since it was read.
        :raises NoRoom: if a provider can't give it.
        """
        body = {
            "allocations": {provider: {"resources": dict(amounts)} for provider, amounts in held.items() if amounts},
            "consumer_generation": consumer.generation,
            "project_id": consumer.project,
            "user_id": consumer.user,
        }
        path = f"/allocations/{quote(consumer.uuid)}"
        answer = self._service.ask("PUT", path, MICROVERSION, body=body, expected=(CONFLICT,))
        if answer.status != CONFLICT:
            return
        code, detail = _error(answer.body)
        if code == CONCURRENT:
            raise Conflict
        raise NoRoom(detail)

    def _ask_for(self, provider: str, what: str) -> Answer:
        return self._service.ask("GET", f"/resource_providers/{provider}/{what}", MICROVERSION, expected=(404,))

    def _get(self, path: str) -> Answer:
        return self._service.ask("GET", path, MICROVERSION)


def _error(body: Any) -> tuple[str, str]:
    """The code and the text of an error of Placement's."""
    try:
        error = body["errors"][0]
        return str(error.get("code", "")), " ".join(str(error.get("detail", "")).split())
    except (LookupError, TypeError, AttributeError):
        return "", " ".join(str(body).split())
