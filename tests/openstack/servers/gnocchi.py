# SPDX-License-Identifier: Apache-2.0
"""Gnocchi: its API and its metricd, with files for measures and a database for its index."""

from __future__ import annotations

import subprocess
from functools import partial
from typing import Any

from gnocchiclient import auth, client
from keystoneauth1 import session

from tests.openstack.servers import settings
from tests.openstack.servers.mariadb import MariaDb
from tests.openstack.servers.process import Server, answers, free_port, script
from tests.openstack.servers.settings import Settings
from tools.lab.workspace import Workspace

USER = "admin"
"""Gnocchi's basic authentication asks for a name and no password; this name may do everything."""

SERVE = """\
import sys
import waitress
listen, sys.argv[1:] = sys.argv[1], sys.argv[2:]
from gnocchi.rest.wsgi import application
waitress.serve(application, listen=listen, threads=2)
"""
"""Gnocchi's own start script would want uWSGI, which has to be compiled."""


class Gnocchi:
    """A Gnocchi of two processes.

    :ivar endpoint: the URL of its API.
    """

    def __init__(self, workspace: Workspace, database: MariaDb) -> None:
        directory = workspace.path / "gnocchi"
        directory.mkdir()
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        where = {"driver": "file", "file_basepath": directory / "measures"}
        self._configuration = settings.write(
            directory / "gnocchi.conf",
            {
                "indexer": {"url": database.create("gnocchi")},
                "storage": where,
                "incoming": where,
                "api": {"auth_mode": "basic"},
                "metricd": {"workers": 1, "metric_processing_delay": 1, "metric_reporting_delay": -1},
            },
        )
        upgrade = [script("gnocchi-upgrade"), *self._arguments, "--sacks-number", "1"]
        Server(workspace, workspace.path / "gnocchi-upgrade", upgrade).run()
        api = [script("python"), "-c", SERVE, f"127.0.0.1:{port}", *self._arguments]
        self._api = Server(workspace, workspace.path / "gnocchi-api", api)
        metricd = [script("gnocchi-metricd"), *self._arguments]
        self._metricd = Server(workspace, workspace.path / "gnocchi-metricd", metricd)
        self._api.wait_until(partial(answers, port), "Gnocchi's API answering")

    @property
    def _arguments(self) -> list[str]:
        return ["--config-file", str(self._configuration)]

    @property
    def credentials(self) -> Settings:
        """Sections for ``ceilometer.conf``; without Keystone, whose place they take."""
        basic = {"auth_type": "gnocchi-basic", "user": USER, "endpoint": self.endpoint}
        return {"gnocchi": basic, "service_credentials": basic}

    def client(self) -> Any:
        """Gnocchi's client for Python."""
        return client.Client("1", session.Session(auth.GnocchiBasicPlugin(USER, self.endpoint)))

    def command(self, *arguments: str) -> str:
        """What the command ``gnocchi`` prints: ``openstack metric`` is the same."""
        access = ["--os-auth-type", "gnocchi-basic", "--user", USER, "--endpoint", self.endpoint]
        done = subprocess.run([script("gnocchi"), *access, *arguments], text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"gnocchi {' '.join(arguments)}: {done.stderr}\n{self._api.said[-2000:]}")
        return done.stdout

    def stop(self) -> None:
        """End both."""
        self._metricd.stop()
        self._api.stop()
