# SPDX-License-Identifier: Apache-2.0
"""Neutron's API without any agent: Nova asks it for the ports of each server, and there are none."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx

from tests.openstack.servers import manage, settings, wsgi
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.process import Server, free_port
from tools.lab.workspace import Workspace


class Neutron:
    """A Neutron, whose tables are made at once, while a Keystone may still be starting.

    :param database: a URL for SQLAlchemy.
    :ivar endpoint: the URL of its API.
    """

    def __init__(self, workspace: Workspace, database: str) -> None:
        self._workspace = workspace
        self._directory = workspace.path / "neutron"
        self._directory.mkdir()
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._database = {"DEFAULT": {"core_plugin": "ml2"}, "database": {"connection": database}}
        self._server: Server | None = None
        tables = settings.write(self._directory / "tables.conf", self._database)
        manage.run(workspace, "neutron-db-manage", "neutron.db.migration.cli", tables, ["upgrade", "head"])

    def start(self, keystone: Keystone, transport_url: str) -> None:
        """Start it, and put it into the catalog."""
        configuration = settings.write(
            self._directory / "neutron.conf",
            {
                "DEFAULT": {
                    "transport_url": transport_url,
                    "state_path": self._directory,
                    "api_paste_config": Path(sys.prefix, "etc", "neutron", "api-paste.ini"),
                    "use_stderr": True,
                    "service_plugins": "",
                    "rpc_workers": 0,
                    "notify_nova_on_port_status_changes": False,
                    "notify_nova_on_port_data_changes": False,
                },
                "ml2": {"mechanism_drivers": "", "type_drivers": "local", "tenant_network_types": "local"},
                "oslo_concurrency": {"lock_path": self._directory},
                "keystone_authtoken": keystone.credentials("neutron"),
            },
            self._database,
        )
        keystone.offer("neutron", "network", self.endpoint)
        where = {"OS_NEUTRON_CONFIG_FILES": str(configuration)}
        self._server = wsgi.serve(self._workspace, self._directory, "neutron.wsgi.api", self._port, where)
        # A listing of ports must not be its first query: until another one, SQLAlchemy's Port lacks what plugins add.
        headers = {"X-Auth-Token": keystone.token()}
        httpx.get(f"{self.endpoint}/v2.0/networks", headers=headers, timeout=60).raise_for_status()

    def stop(self) -> None:
        """End it."""
        if self._server:
            self._server.stop()
