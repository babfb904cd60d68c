# SPDX-License-Identifier: Apache-2.0
"""What Placement and Nova answer, and the file that stands for Placement's API."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import requests

from tests.fuzz.targets import parts
from vmqos.openstack import provider_yaml as files
from vmqos.openstack.consumers import Consumer, Consumers, NoRoom
from vmqos.openstack.exceptions import CloudError
from vmqos.openstack.nova import Nova
from vmqos.openstack.placement import Conflict, Inventory, Placement, Provider
from vmqos.openstack.servers import Servers
from vmqos.openstack.service import LONGEST_REASON, ConnectedService

_PROVIDER = Provider("u", "n", 1, None)
_INVENTORIES = {"CUSTOM_LLC_WAYS": Inventory(9, max_unit=9), "CUSTOM_LLC_CLASSES": Inventory(15)}


class _Adapter:
    """Stands for the way to a service that answers each request with the same bytes.

    The first line of an input is the HTTP status, what follows is the body.
    """

    def __init__(self, data: bytes) -> None:
        status, _, body = data.partition(b"\n")
        self._answer = requests.Response()
        self._answer.status_code = int(status) if status.isdigit() and len(status) == 3 else 200
        self._answer._content = body
        self._answer._content_consumed = True
        self._answer.headers["Content-Type"] = "application/json"
        self.session = SimpleNamespace(timeout=30.0)
        # As a prepared request has them; its token must not get into any message.
        self._answer.request = SimpleNamespace(headers={"X-Auth-Token": "secret"})  # type: ignore[assignment]

    def request(self, *_: Any, **__: Any) -> requests.Response:
        return self._answer


def placement(data: bytes) -> bool:
    service = ConnectedService("placement", _Adapter(data))  # type: ignore[arg-type]
    api, consumers = Placement(service), Consumers(service)
    return _ask(
        lambda: api.find("n"),
        lambda: api.create("n", "p"),
        lambda: api.children(_PROVIDER),
        lambda: api.move(_PROVIDER, "p"),
        lambda: [one.capacity for one in api.inventories(_PROVIDER)[1].values()],
        lambda: api.set_inventories(_PROVIDER, 1, _INVENTORIES),
        lambda: sorted(api.traits(_PROVIDER)[1]),
        lambda: sum(api.usages(_PROVIDER).values()),
        lambda: [sum(held.values()) for held in api.claims(_PROVIDER)],
        lambda: api.ensure_class("CUSTOM_LLC_WAYS"),
        lambda: consumers.providers(),
        lambda: [one.capacity for one in consumers.inventories("u").values()],
        lambda: [sum(held.values()) for held in consumers.of_provider("u").values()],
        lambda: [sum(held.values()) for held in consumers.get("u").held.values()],
        lambda: consumers.replace(Consumer("u"), {}),
        blind=2,
    )


def nova(data: bytes) -> bool:
    service = ConnectedService("nova", _Adapter(data))  # type: ignore[arg-type]
    api, servers = Nova(service), Servers(service)
    return _ask(
        lambda: api.extra_specs("u"),
        lambda: api.extra_specs_of_host("node-1"),
        lambda: list(servers.servers("node-1")),
        lambda: servers.get("u"),
        lambda: list(servers.migrations()),
        blind=0,
    )


def _ask(*questions: Callable[[], object], blind: int) -> bool:
    """Whether one of the questions got an answer that makes sense.

    :param blind: how many of the questions look at no more than the status.
    """
    taken = 0
    for question in questions:
        try:
            question()
            taken += 1
        except (Conflict, NoRoom):
            taken += 1
        except CloudError as error:
            assert len(str(error)) < LONGEST_REASON + 500 and "secret" not in str(error)
    return taken > blind


def provider_yaml(data: bytes) -> bool:
    rendered = files.render({}, []).partition("meta:")[0].encode()
    path = str(parts.lay_down("provider.yaml", rendered + data))
    try:
        files.reserve(path)
    except files.NotOurs:
        return False
    assert files.reserve(path) is False, "what was reserved is reserved again"
    return True
