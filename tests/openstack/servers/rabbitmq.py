# SPDX-License-Identifier: Apache-2.0
"""A RabbitMQ broker that shares nothing with the system's: not its port mapper, cookie, data or plugins."""

from __future__ import annotations

import secrets

from tests.openstack.servers.process import Server, answers, free_port, program
from tools.lab.workspace import Workspace

BROKER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Without Debian's wrapper in ``/usr/sbin``, which insists on the user ``rabbitmq``."""

ARGUMENTS = "-kernel inet_dist_use_interface {127,0,0,1}"
# One scheduler that does not spin: the broker is idle, and the machine is small.
TUNING = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none +A 4"


class RabbitMq:
    """A broker on loopback, and the port mapper (epmd) that Erlang insists on.

    Its start takes some seconds, which the constructor does not wait for.
    """

    def __init__(self, workspace: Workspace) -> None:
        program("rabbitmq-server", "rabbitmq-server")
        self._directory = workspace.path / "rabbitmq"
        home = self._directory / "home"
        home.mkdir(parents=True)
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)
        self._port, mapper_port = free_port(), free_port()
        (self._directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self._port}\n")
        (self._directory / "plugins").write_text("[].\n")
        (self._directory / "empty").touch()
        mapper = [program("epmd", "erlang-base"), "-port", str(mapper_port), "-address", "127.0.0.1"]
        self._mapper = Server(workspace, workspace.path / "epmd", mapper)
        self._mapper.wait_until(lambda: answers(mapper_port), "epmd answering")
        self._workspace = workspace
        self._environment = {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"{workspace.path.name}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self._directory / "data"),
            "RABBITMQ_LOG_BASE": str(self._directory / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self._directory / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(self._directory / "empty"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._directory / "plugins"),
            # The broker takes the place of the start script, instead of being its child.
            "RUNNING_UNDER_SYSTEMD": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{ARGUMENTS} {TUNING}",
        }
        self.start()

    def start(self) -> None:
        """Start the broker after :meth:`kill`, on the same port and with what it kept."""
        self._server = Server(self._workspace, self._directory, [BROKER], self._environment)

    def kill(self) -> None:
        """End the broker by SIGKILL; its queues are on its disk as far as they are durable."""
        self._server.stop()

    @property
    def address(self) -> str:
        """Where it will be, for ``transport_url``, whether it answers yet or not."""
        return f"rabbit://guest:guest@127.0.0.1:{self._port}/"

    def url(self) -> str:
        """Where it is, for ``transport_url``; waits until it answers."""
        self._server.wait_until(lambda: answers(self._port), "RabbitMQ answering", 120.0)
        return self.address

    def stop(self) -> None:
        """End both."""
        self.kill()
        self._mapper.stop()
