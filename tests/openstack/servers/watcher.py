# SPDX-License-Identifier: Apache-2.0
"""Watcher: its API, its decision engine with our goal and strategy, and its applier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.openstack.servers import manage, settings, wsgi
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.process import Server, free_port, script
from tools.lab.workspace import Workspace


class Watcher:
    """A Watcher that asks a Prometheus, and hears of Nova's servers by Nova's notifications.

    :param database: a URL for SQLAlchemy.
    :param transport_url: where the message bus is.
    :param prometheus: the port of the Prometheus, on 127.0.0.1.
    """

    def __init__(
        self, workspace: Workspace, keystone: Keystone, *, database: str, transport_url: str, prometheus: int
    ) -> None:
        self._keystone = keystone
        directory = workspace.path / "watcher"
        directory.mkdir()
        # It lists the servers of all projects, and migrates them.
        credentials = keystone.credentials("watcher", "admin")
        configuration = settings.write(
            directory / "watcher.conf",
            {
                "DEFAULT": {"transport_url": transport_url, "state_path": directory, "use_stderr": True},
                "database": {"connection": database},
                "keystone_authtoken": credentials,
                "watcher_clients_auth": credentials,
                # There is no Cinder.
                "collector": {"collector_plugins": "compute"},
                "oslo_concurrency": {"lock_path": directory},
                # Seconds from one look at a migration to the next.
                "nova": {"migration_interval": 1},
                # As the operator's guide has it.
                "watcher_strategies.vmqos_noisy_neighbour": {"datasources": "prometheus"},
                "prometheus_client": {"host": "127.0.0.1", "port": prometheus},
            },
        )
        manage.run(workspace, "watcher-db-manage", "watcher.cmd.dbmanage", configuration, ["upgrade"])
        port = free_port()
        self._endpoint = f"http://127.0.0.1:{port}"
        keystone.offer("watcher", "infra-optim", self._endpoint)
        arguments = ["--config-file", str(configuration)]
        self._servers = [
            Server(workspace, workspace.path / name, [script(name), *arguments])
            for name in ("watcher-decision-engine", "watcher-applier")
        ]
        api = workspace.path / "watcher-api"
        self._servers.append(wsgi.serve(workspace, api, "watcher.wsgi.api", port, {}, arguments))

    @property
    def logs(self) -> list[Path]:
        """What they say."""
        return [server.log for server in self._servers]

    def ask(self, path: str) -> Any:
        """What its API answers an administrator, such as at ``audits/UUID``.

        :raises httpx.HTTPStatusError: if it refuses.
        """
        headers = {"X-Auth-Token": self._keystone.token(), "OpenStack-API-Version": "infra-optim latest"}
        answer = httpx.get(f"{self._endpoint}/v1/{path}", headers=headers, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def stop(self) -> None:
        """End all of it."""
        for server in self._servers:
            server.stop()
