# SPDX-License-Identifier: Apache-2.0
"""Glance, with images in files."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.openstack.servers import manage, settings, wsgi
from tests.openstack.servers.keystone import Keystone
from tests.openstack.servers.process import Server, free_port
from tools.lab.workspace import Workspace


class Glance:
    """A Glance, whose tables are made at once, while a Keystone may still be starting.

    :param database: a URL for SQLAlchemy.
    :ivar endpoint: the URL of its API.
    """

    def __init__(self, workspace: Workspace, database: str) -> None:
        self._workspace = workspace
        self._directory = workspace.path / "glance"
        self._directory.mkdir()
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._database = {"database": {"connection": database}}
        self._server: Server | None = None
        tables = settings.write(self._directory / "tables.conf", self._database)
        manage.run(workspace, "glance-manage", "glance.cmd.manage", tables, ["db_sync"])

    def start(self, keystone: Keystone) -> None:
        """Start it, and put it into the catalog."""
        stores = {name: self._directory / name for name in ("images", "staging", "tasks")}
        for store in stores.values():
            store.mkdir()
        settings.write(
            self._directory / "glance-api.conf",
            {
                "DEFAULT": {
                    "enabled_backends": "images:file",
                    "use_stderr": True,
                    "worker_self_reference_url": self.endpoint,
                },
                "glance_store": {"default_backend": "images"},
                "images": {"filesystem_store_datadir": stores["images"]},
                "os_glance_staging_store": {"filesystem_store_datadir": stores["staging"]},
                "os_glance_tasks_store": {"filesystem_store_datadir": stores["tasks"]},
                "paste_deploy": {
                    "flavor": "keystone",
                    "config_file": Path(sys.prefix, "etc", "glance", "glance-api-paste.ini"),
                },
                "oslo_concurrency": {"lock_path": self._directory},
                "keystone_authtoken": keystone.credentials("glance"),
            },
            self._database,
        )
        keystone.offer("glance", "image", self.endpoint)
        where = {"OS_GLANCE_CONFIG_DIR": str(self._directory)}
        self._server = wsgi.serve(self._workspace, self._directory, "glance.wsgi.api", self._port, where)

    def stop(self) -> None:
        """End it."""
        if self._server:
            self._server.stop()
