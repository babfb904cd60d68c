# SPDX-License-Identifier: Apache-2.0
"""The servers of all projects and their migrations, as Nova's API tells an administrator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote

from vmqos.openstack import nova
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


class _MigrationAnswer(TypedDict):
    uuid: str
    instance_uuid: str
    status: str | None


class _MigrationsPage(TypedDict):
    migrations: list[_MigrationAnswer]
    migrations_links: NotRequired[list[Any]]


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
        query = {"all_tenants": "1"}
        if hostname:
            # Nova takes "node" for a regular expression.
            query["node"] = f"^{re.escape(hostname)}$"
        for found in nova.servers(self._service, MICROVERSION, query):
            yield _server(found)

    def get(self, uuid: str) -> Server | None:
        """One server, soft-deleted ones too; ``None`` where there is none."""
        answer = self._service.ask("GET", f"/servers/{quote(uuid)}", MICROVERSION, expected=(404,))
        return None if answer.status == 404 else _server(answer.read(nova.OneServer)["server"])

    def migrations(self) -> Iterator[Migration]:
        """All migrations that Nova remembers, those that are over too, the newest first, a page a request."""
        found = nova.pages(
            self._service,
            "/os-migrations",
            microversion=MICROVERSION,
            kind=_MigrationsPage,
            key="migrations",
            marker="uuid",
            query={},
        )
        for told in found:
            yield Migration(told["uuid"], told["instance_uuid"], told["status"] or "")


def _server(value: nova.ServerAnswer) -> Server:
    return Server(
        uuid=value["id"],
        name=value.get("name") or "",
        hostname=value.get("OS-EXT-SRV-ATTR:hypervisor_hostname") or "",
        state=value.get("OS-EXT-STS:vm_state") or "",
        task=value.get("OS-EXT-STS:task_state") or "",
        extra_specs=value.get("flavor", {}).get("extra_specs"),
    )
