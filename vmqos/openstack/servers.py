# SPDX-License-Identifier: Apache-2.0
"""The servers of all projects and their migrations, as Nova's API tells an administrator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from vmqos.openstack.nova import PAGE
from vmqos.openstack.service import Service

MICROVERSION = "2.59"
"""Servers with the flavor that they were made or resized with (2.47), migrations with UUIDs and in pages (Pike)."""

STABLE = frozenset({"active", "paused", "suspended", "stopped", "rescued", "shelved"})
"""Nova's states (``nova.compute.vm_states``) in which a server is on one host, and is to stay there. ``resized`` is no
such state: the server has two hosts, or two flavors, until the operator confirms."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server.

    :ivar name: its name.
    :ivar hostname: the hypervisor hostname of its compute node; empty where it is on none.
    :ivar state: Nova's ``vm_state``.
    :ivar task: what Nova does with it now (``task_state``); empty where that is nothing.
    :ivar extra_specs: of its flavor, as it was when the server got it; ``None`` where Nova does not show them.
    """

    uuid: str
    name: str
    hostname: str
    state: str
    task: str
    extra_specs: Mapping[str, str] | None

    @property
    def is_at_rest(self) -> bool:
        """Whether it is on one host with one flavor, and Nova changes nothing about it now."""
        return self.state in STABLE and not self.task and bool(self.hostname)


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration, a resize or an evacuation.

    :ivar server: the UUID of its server.
    :ivar status: Nova's word, such as ``finished``, which is a resize that waits to be confirmed.
    """

    uuid: str
    server: str
    status: str


class Servers:
    """The questions; they take an administrator. All raise :class:`vmqos.openstack.exceptions.CloudError`.

    :param service: the way to Nova.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def servers(self, hostname: str = "") -> Iterator[Server]:
        """The servers of the cloud, or of one compute node, a page a request; soft-deleted ones are left out.

        :param hostname: the hypervisor hostname of the compute node; all if empty.
        """
        query = {"all_tenants": "1", "limit": str(PAGE)}
        if hostname:
            # Nova takes "node" for a regular expression.
            query["node"] = f"^{re.escape(hostname)}$"
        for found in self._pages("/servers/detail", "servers", "id", query):
            yield _server(found)

    def get(self, uuid: str) -> Server | None:
        """One server, soft-deleted ones too; ``None`` where there is none."""
        answer = self._service.ask("GET", f"/servers/{quote(uuid)}", MICROVERSION, expected=(404,))
        return None if answer.status == 404 else _server(answer.body["server"])

    def migrations(self) -> Iterator[Migration]:
        """All migrations that Nova remembers, those that are over too, the newest first, a page a request."""
        query = {"limit": str(PAGE)}
        for found in self._pages("/os-migrations", "migrations", "uuid", query):
            yield Migration(str(found["uuid"]), str(found["instance_uuid"]), str(found["status"]))

    def _pages(self, path: str, key: str, marker: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        last: dict[str, str] = {}
        while True:
            body = self._service.ask("GET", path, MICROVERSION, query={**query, **last}).body
            found: list[dict[str, Any]] = body[key]
            yield from found
            if not found or not body.get(f"{key}_links"):
                return
            last = {"marker": str(found[-1][marker])}


def _server(value: Mapping[str, Any]) -> Server:
    specs = value.get("flavor", {}).get("extra_specs")
    return Server(
        uuid=str(value["id"]),
        name=str(value.get("name") or ""),
        hostname=str(value.get("OS-EXT-SRV-ATTR:hypervisor_hostname") or ""),
        state=str(value.get("OS-EXT-STS:vm_state") or ""),
        task=str(value.get("OS-EXT-STS:task_state") or ""),
        extra_specs=None if specs is None else {str(name): str(text) for name, text in specs.items()},
    )
