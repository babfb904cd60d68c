# SPDX-License-Identifier: Apache-2.0
"""The extra specs of servers' flavors, as Nova's API tells them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from vmqos.openstack import exceptions
from vmqos.openstack.exceptions import Refused
from vmqos.openstack.service import Service

MICROVERSION = "2.47"
"""From here on (Pike), a server comes with its flavor as it was when the server got it, extra specs included."""

PAGE = 500
"""Servers a page; Nova's own limit is 1000 unless configured."""


class Nova:
    """The questions to Nova's API. All raise :class:`vmqos.openstack.exceptions.CloudError`.

    :param service: the way to Nova.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def extra_specs(self, uuid: str) -> dict[str, str]:
        """The extra specs of one server's flavor.

        :raises vmqos.openstack.exceptions.ServerUnknown: if there is no such server to be seen.
        :raises vmqos.openstack.exceptions.FlavorHidden: if the credentials are not enough to see them.
        """
        answer = self._service.ask("GET", f"/servers/{quote(uuid)}", MICROVERSION, expected=(404,))
        if answer.status == 404:
            raise exceptions.ServerUnknown(uuid)
        return _extra_specs(answer.body["server"])

    def extra_specs_of_host(self, hostname: str) -> dict[str, dict[str, str]]:
        """The extra specs of all servers of a compute node, by UUID; those are left out whose flavor is not shown.

        One request for each page. It takes an administrator: no other user may list the servers of all projects.

        :param hostname: the hypervisor hostname.
        """
        found = {}
        # Nova takes "node" for a regular expression (_regex_instance_filter in nova.db.main.api), and the dots of a
        # hostname would stand for any character.
        for server in self._pages({"all_tenants": "1", "node": f"^{re.escape(hostname)}$", "limit": str(PAGE)}):
            try:
                found[str(server["id"])] = _extra_specs(server)
            except exceptions.FlavorHidden:
                continue
        return found

    def _pages(self, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        marker: dict[str, str] = {}
        while True:
            body = self._service.ask("GET", "/servers/detail", MICROVERSION, query={**query, **marker}).body
            servers: list[dict[str, Any]] = body["servers"]
            yield from servers
            if not servers or not body.get("servers_links"):
                return
            marker = {"marker": str(servers[-1]["id"])}


def may_not_list(error: Refused) -> bool:
    """Whether the refusal is about listing, so that asking for one server may be allowed all the same."""
    return error.status in (400, 403)


def _extra_specs(server: Mapping[str, Any]) -> dict[str, str]:
    try:
        specs = server["flavor"]["extra_specs"]
        return {str(key): str(value) for key, value in specs.items()}
    except (KeyError, TypeError, AttributeError):
        raise exceptions.FlavorHidden(str(server.get("id"))) from None
