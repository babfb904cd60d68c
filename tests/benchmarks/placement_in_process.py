# SPDX-License-Identifier: Apache-2.0
"""Placement's own code in this process, on a database in a file: no server, no HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import os_traits
import webob
from oslo_config import cfg
from placement import conf as placement_conf
from placement import db_api, deploy

from vmqos.openstack.extra_specs import resources

_CONF = """\
[placement_database]
connection = sqlite:///{folder}/placement.db
sync_on_startup = true
[api]
auth_strategy = noauth2
"""
_HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.36", "Content-Type": "application/json"}
_TRAITS = (*os_traits.get_traits("HW_CPU_X86_")[:40], *os_traits.get_traits("COMPUTE_")[:30])
"""As many as a compute node has."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What Placement answered.

    :ivar hosts: how many compute nodes are in it.
    :ivar size: bytes.
    """

    hosts: int
    size: int


class PlacementInProcess:
    """A Placement with compute nodes.

    :param folder: where its database and its configuration are.
    """

    def __init__(self, folder: str) -> None:
        file = f"{folder}/placement.conf"
        with open(file, "w", encoding="utf-8") as written:
            written.write(_CONF.format(folder=folder))
        conf = cfg.ConfigOpts()
        placement_conf.register_opts(conf)
        conf([], project="placement", default_config_files=[file])
        db_api.configure(conf)
        self._application = deploy.loadapp(conf)
        for name in resources.CLASSES:
            self._ask("PUT", f"/resource_classes/{name}")
        self._ask("PUT", f"/traits/{resources.L3_CAT}")

    def add(self, number: int, *, has_room: bool) -> None:
        """Add a compute node with a provider of cache.

        :param has_room: whether it has CPUs left; it has ways left in any case.
        """
        root = self._provider(f"node-{number}", None)
        cpus = {"total": 64, "reserved": 0 if has_room else 64}
        self._fill(root, {"VCPU": cpus, "MEMORY_MB": {"total": 4096}, "DISK_GB": {"total": 100}}, _TRAITS)
        cache = self._provider(f"node-{number}{resources.PROVIDER_SUFFIX}", root)
        held = {resources.LLC_WAYS: {"total": 9}, resources.LLC_CLASSES: {"total": 13}}
        self._fill(cache, held, (resources.L3_CAT,))

    def ask(self, query: str) -> Answer:
        """Ask for allocation candidates."""
        body = self._ask("GET", f"/allocation_candidates?{query}")
        summaries = json.loads(body)["provider_summaries"].values()
        return Answer(len({summary["root_provider_uuid"] for summary in summaries}), len(body))

    def _provider(self, name: str, parent: str | None) -> str:
        uuid = str(uuid4())
        body = {"name": name, "uuid": uuid, **({"parent_provider_uuid": parent} if parent else {})}
        self._ask("POST", "/resource_providers", body)
        return uuid

    def _fill(self, provider: str, inventories: Mapping[str, Any], traits: tuple[str, ...]) -> None:
        path = f"/resource_providers/{provider}"
        self._ask("PUT", f"{path}/inventories", {"inventories": inventories, "resource_provider_generation": 0})
        self._ask("PUT", f"{path}/traits", {"traits": list(traits), "resource_provider_generation": 1})

    def _ask(self, method: str, path: str, body: Any = None) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        request = webob.Request.blank(path, method=method, headers=_HEADERS, body=data)
        answer = request.get_response(self._application)
        if answer.status_code >= 300:
            raise RuntimeError(f"{method} {path}: HTTP {answer.status_code}: {answer.text}")
        return bytes(answer.body)
