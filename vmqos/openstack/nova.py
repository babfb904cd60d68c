# SPDX-License-Identifier: Apache-2.0
"""The extra specs of servers' flavors, as Nova's API tells them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote

from vmqos.openstack import exceptions
from vmqos.openstack.exceptions import Refused
from vmqos.openstack.service import Service

MICROVERSION = "2.47"
"""From here on (Pike), a server comes with its flavor as it was when the server got it, extra specs included."""

PAGE = 500
"""Servers a page; Nova's own limit is 1000 unless configured."""


class FlavorAnswer(TypedDict):
    """A server's flavor, as Nova tells it; the extra specs are missing where the credentials do not show them."""

    extra_specs: NotRequired[dict[str, str] | None]


ServerAnswer = TypedDict(
    "ServerAnswer",
    {
        "id": str,
        "name": NotRequired[str | None],
        "flavor": NotRequired[FlavorAnswer],
        "OS-EXT-SRV-ATTR:hypervisor_hostname": NotRequired[str | None],
        "OS-EXT-STS:vm_state": NotRequired[str | None],
        "OS-EXT-STS:task_state": NotRequired[str | None],
    },
)
"""A server, as Nova tells it."""


class OneServer(TypedDict):
    """The answer to the question for one server."""

    server: ServerAnswer


class _ServersPage(TypedDict):
    servers: list[ServerAnswer]
    servers_links: NotRequired[list[Any]]


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
        return _extra_specs(answer.read(OneServer)["server"])

    def extra_specs_of_host(self, hostname: str) -> dict[str, dict[str, str]]:
        """The extra specs of all servers of a compute node, by UUID; those are left out whose flavor is not shown.

        One request for each page. It takes an administrator: no other user may list the servers of all projects.

        :param hostname: the hypervisor hostname.
        """
        found = {}
        # Nova takes "node" for a regular expression (_regex_instance_filter in nova.db.main.api), and the dots of a
        # hostname would stand for any character.
        query = {"all_tenants": "1", "node": f"^{re.escape(hostname)}$"}
        for server in servers(self._service, MICROVERSION, query):
            try:
                found[server["id"]] = _extra_specs(server)
            except exceptions.FlavorHidden:
                continue
        return found


def servers(service: Service, microversion: str, query: Mapping[str, str]) -> Iterator[ServerAnswer]:
    """The servers that match the query, as Nova tells them.

    :raises vmqos.openstack.exceptions.CloudError: if Nova does not answer, or refuses.
    """
    return pages(
        service,
        "/servers/detail",
        microversion=microversion,
        kind=_ServersPage,
        key="servers",
        marker="id",
        query=query,
    )


def pages(
    service: Service,
    path: str,
    *,
    microversion: str,
    kind: type,
    key: str,
    marker: str,
    query: Mapping[str, str],
) -> Iterator[Any]:
    """The items of one of Nova's lists, a page a request.

    :param kind: a page's type.
    :param key: where the list is in a page; ``KEY_links`` stands beside it where there are more pages.
    :param marker: the field of a page's last item by which the next one is asked for.
    :raises vmqos.openstack.exceptions.Refused: if a page does not make sense, or is followed by itself.
    """
    last, asked = dict[str, str](), set[str]()
    while True:
        answer = service.ask("GET", path, microversion, query={**query, "limit": str(PAGE), **last})
        page: Any = answer.read(kind)
        yield from page[key]
        if not page[key] or not page.get(f"{key}_links"):
            return
        last = {"marker": page[key][-1][marker]}
        if last["marker"] in asked:
            raise Refused(answer.section, answer.question, 0, f"a page that ends with {last['marker']} comes again")
        asked.add(last["marker"])


def may_not_list(error: Refused) -> bool:
    """Whether the refusal is about listing, so that asking for one server may be allowed all the same."""
    return error.status in (400, 403)


def _extra_specs(server: ServerAnswer) -> dict[str, str]:
    specs = server.get("flavor", {}).get("extra_specs")
    if specs is None:
        raise exceptions.FlavorHidden(server["id"])
    return specs
