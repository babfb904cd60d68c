# SPDX-License-Identifier: Apache-2.0
"""Placement, with a database in a file; with Keystone, or with tokens that are believed as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.openstack.servers import settings, wsgi
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.process import Server, free_port, script
from tools.lab.workspace import Workspace

ADMIN_TOKEN = "admin"
"""Without Keystone, ``NoAuthMiddleware`` (placement.auth) takes a token for the name of a user; this one may do all."""


class Placement:
    """A Placement.

    :param keystone: who checks the tokens; ``None``: nobody.
    :param database: a URL for SQLAlchemy; a file of its own, if ``None``.
    :param threads: how many requests are served at once; a file takes one writer and refuses others.
    :ivar endpoint: the URL of its API.
    """

    def __init__(
        self, workspace: Workspace, keystone: Keystone | None = None, database: str | None = None, threads: int = 1
    ) -> None:
        self._workspace = workspace
        self._threads = threads
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._directory = workspace.path / f"placement-{self._port}"
        self._directory.mkdir()
        self._keystone = keystone
        configuration = settings.write(
            self._directory / "placement.conf",
            {
                "api": {"auth_strategy": "keystone" if keystone else "noauth2"},
                "placement_database": {"connection": database or f"sqlite:///{self._directory}/database"},
                "oslo_policy": {"policy_dirs": self._directory / "policy.d"},
            },
            {"keystone_authtoken": keystone.credentials("placement")} if keystone else {},
        )
        sync: list[str | Path] = [script("placement-manage"), "--config-file", configuration, "db", "sync"]
        Server(workspace, workspace.path / f"placement-sync-{self._port}", sync).run()
        if keystone is not None:
            keystone.offer("placement", "placement", self.endpoint)
        self._server = self._serve()

    @property
    def said(self) -> str:
        """Its log."""
        return self._server.said

    @property
    def pid(self) -> int:
        """Its process."""
        return self._server.pid

    @property
    def credentials(self) -> dict[str, str]:
        """A section ``[placement]`` with every right; for one that asks no Keystone."""
        return {"auth_type": "admin_token", "endpoint": self.endpoint, "token": ADMIN_TOKEN}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What an administrator is answered; for one that asks no Keystone.

        :raises httpx.HTTPStatusError: if it refuses.
        """
        token = ADMIN_TOKEN if self._keystone is None else self._keystone.token()
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": "placement 1.39"}
        answer = httpx.request(method, f"{self.endpoint}{path}", json=body, headers=headers, timeout=30)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def stop(self) -> None:
        """End it; its database stays."""
        self._server.stop()

    def start(self) -> None:
        """Start it again."""
        self._server = self._serve()

    def _serve(self) -> Server:
        where = {"OS_PLACEMENT_CONFIG_DIR": str(self._directory)}
        return wsgi.serve(
            self._workspace, self._directory, "placement.wsgi.api", self._port, where, threads=self._threads
        )
