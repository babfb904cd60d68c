# SPDX-License-Identifier: Apache-2.0
"""Placement's own code in this process, on a database in a file: no server, no HTTP."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import os_traits
import webob
from oslo_config import cfg
from placement import conf as placement_conf
from placement import db_api, deploy

from vmqos.extra_specs import resources

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
        self._database = f"{folder}/placement.db"
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

    def add_copies(self, number: int, count: int) -> None:
        """Add compute nodes that are as an earlier one is, without Placement's work for that.

        :param number: that of the earlier one.
        :param count: how many.
        """
        with contextlib.closing(sqlite3.connect(self._database)) as database, database:
            (names,) = zip(*database.execute("SELECT name FROM pragma_table_info('resource_providers')"), strict=True)
            selected = f"SELECT {', '.join(names)} FROM resource_providers WHERE name = ?"
            of = [
                dict(zip(names, database.execute(selected, (name,)).fetchone(), strict=True))
                for name in (f"node-{number}", f"node-{number}{resources.PROVIDER_SUFFIX}")
            ]
            for _ in range(count):
                root = 0
                for original in of:
                    uuid = str(uuid4())
                    new = {**original, "id": None, "uuid": uuid, "name": f"{original['name']}-{uuid}"}
                    if root:
                        new |= {"root_provider_id": root, "parent_provider_id": root}
                    made = _insert(database, "resource_providers", new)
                    if not root:
                        root = made
                        database.execute("UPDATE resource_providers SET root_provider_id = id WHERE id = ?", (made,))
                    for table in ("inventories", "resource_provider_traits"):
                        for row in _rows(database, table, original["id"]):
                            _insert(database, table, {**row, "resource_provider_id": made})

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


def _rows(database: sqlite3.Connection, table: str, provider: int) -> Iterator[dict[str, Any]]:
    """What a table has of a provider, without the rows' own identifiers."""
    found = database.execute(f"SELECT * FROM {table} WHERE resource_provider_id = ?", (provider,))
    names = [column[0] for column in found.description]
    for row in found.fetchall():
        yield {name: value for name, value in zip(names, row, strict=True) if name != "id"}


def _insert(database: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> int:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    made = database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values())).lastrowid
    return int(made or 0)
