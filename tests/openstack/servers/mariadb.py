# SPDX-License-Identifier: Apache-2.0
"""A MariaDB that knows no users: whoever reaches its socket may do everything."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pymysql

from tests.openstack.servers.process import Server, program
from tools.lab.workspace import Workspace

SETTINGS = """\
[mariadbd]
user = root
skip-networking
# Spares the making of the tables of users and rights, and a second or two.
skip-grant-tables
innodb-buffer-pool-size = 16M
innodb-log-file-size = 4M
# What is lost with the machine is of no use without it.
innodb-flush-log-at-trx-commit = 0
innodb-flush-method = nosync
innodb-doublewrite = 0
"""


class MariaDb:
    """A database server on a socket in the workspace.

    :ivar socket: the only way in.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="mariadb-", dir=workspace.path))
        data = self._directory / "data"
        data.mkdir()
        self.socket = self._directory / "socket"
        settings = self._directory / "my.cnf"
        settings.write_text(f"{SETTINGS}datadir = {data}\nsocket = {self.socket}\npid-file = {self._directory}/pid\n")
        daemon = program("mariadbd", "mariadb-server-core")
        self._server = Server(workspace, self._directory, [daemon, f"--defaults-file={settings}"])

    def create(self, name: str) -> str:
        """Make a database; the result is its URL for SQLAlchemy."""
        self._server.wait_until(self._answers, "MariaDB answering")
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {name} character set utf8mb4")
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={self.socket}"

    def stop(self) -> None:
        """End it."""
        self._server.stop()

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except pymysql.OperationalError:
            return False
        return True

    def _connect(self) -> pymysql.Connection:
        return pymysql.connect(unix_socket=str(self.socket), user="root")
