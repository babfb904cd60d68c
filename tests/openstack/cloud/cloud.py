# SPDX-License-Identifier: Apache-2.0
"""A cloud: Keystone, Placement, Glance, Neutron and Nova, and compute nodes with libvirt, resctrl and the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import openstack

from tests.openstack.cloud.node import Node
from tests.openstack.servers.glance import Glance
from tests.openstack.servers.keystone import PASSWORD, Keystone
from tests.openstack.servers.mariadb import MariaDb
from tests.openstack.servers.neutron import Neutron
from tests.openstack.servers.nova_services import NovaServices
from tests.openstack.servers.placement import Placement
from tests.openstack.servers.process import child_environment, script
from tests.openstack.servers.rabbitmq import RabbitMq
from tools.lab import processes
from tools.lab.workspace import Workspace
from vmqos.extra_specs.resources import LLC_WAYS, provider_name

MICROVERSION = "2.96"
IMAGE = "nothing"
"""An image of zeros: the firmware finds nothing to boot, and idles."""

CDROM = "nothing on a CD"
"""The same as a CD: without a disk to write to, libvirt lets a server migrate where no cluster's file system is."""

VOLUME_DESCRIPTORS = b"".join(bytes([kind]) + b"CD001\x01" + bytes(2041) for kind in (1, 255))
"""Primary and last one, after 32 KiB (ECMA-119, 8)."""

PATIENCE = 180.0
"""Seconds for what several services do together, on a busy machine too."""

Say = Callable[[str], None]
T = TypeVar("T")


class Cloud:
    """All of it, with one compute node, started by the constructor.

    :param say: takes a line about the progress.
    :ivar nodes: the compute nodes.
    :ivar api: the cloud, as openstacksdk has it.
    :ivar bus: the message broker, where Ceilometer's samples can go too.
    """

    def __init__(self, workspace: Workspace, say: Say) -> None:
        self._say, self._begun = say, time.monotonic()
        self.workspace = workspace
        self.nodes: list[Node] = []
        node = Node("compute-1", workspace)
        self._database = MariaDb(workspace)
        self.bus = RabbitMq(workspace)
        with _at_once(workspace) as submit:
            nova = submit(self._timed("Nova's tables", self._make_nova))
            keystone = submit(self._timed("Keystone", lambda: Keystone(workspace)))
            neutron = submit(self._timed("Neutron's tables", lambda: Neutron(workspace, self.make_database("neutron"))))
            glance = submit(self._timed("Glance's tables", lambda: Glance(workspace, self.make_database("glance"))))
            host = submit(self._timed("resctrl and libvirtd", node.start))
            self.keystone = keystone.result()
            placement = submit(self._timed("Placement", self._make_placement))
            self.glance, self.neutron, self.nova = glance.result(), neutron.result(), nova.result()
            network = submit(self._timed("Neutron", lambda: self.neutron.start(self.keystone, self.bus.url())))
            images = submit(self._timed("Glance", self._start_glance))
            api = submit(self._timed("Nova's API", lambda: self.nova.start(self.keystone)))
            for started in (host, api):
                started.result()
            self.nova.start_compute(node.name, node.libvirt)
            self.placement = placement.result()
            node.start_agent(self._credentials())
            for started in (network, images):
                started.result()
        self._wait_until_known(node)
        self._progress("a cloud with one compute node")

    def add(self, node: Node) -> None:
        """Take a node in, whose libvirtd runs."""
        self.nova.start_compute(node.name, node.libvirt, node.compute)
        node.start_agent(self._credentials())
        self._wait_until_known(node)

    def remove(self, node: Node) -> None:
        """Let a node go that has no servers, as ``openstack compute service delete`` does."""
        node.agent.kill()
        self.nova.stop_compute(node.name)
        for service in self.api.compute.services(host=node.name):
            self.api.compute.delete_service(service)
        self.nodes.remove(node)
        node.stop()

    def make_database(self, name: str) -> str:
        """Make a database; the result is its URL for SQLAlchemy."""
        return self._database.create(name)

    def cache(self, hostname: str) -> dict[str, Any] | None:
        """A compute node's provider of cache, as Placement has it."""
        found = self.placement.ask("GET", f"/resource_providers?name={provider_name(hostname)}")["resource_providers"]
        return next(iter(found), None)

    def of_cache(self, node: Node, what: str) -> Any:
        """The inventories, usages or allocations of a node's provider of cache."""
        child = self.cache(node.hostname)
        assert child is not None, f"there is no {provider_name(node.hostname)}"
        return self.placement.ask("GET", f"/resource_providers/{child['uuid']}/{what}")[what]

    def client(self, *arguments: str, fails: bool = False) -> str:
        """What the ``openstack`` command prints; or says as an error, where it has to fail.

        :raises AssertionError: if it ends otherwise than expected, with what it said.
        """
        return self.run(script("openstack"), *arguments, fails=fails)

    def run(self, *command: str | Path, fails: bool = False) -> str:
        """The same for any command that finds the cloud in the environment."""
        environment = child_environment(self._environment)
        done = subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True)
        assert bool(done.returncode) is fails, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
        """Wait until it is true.

        :raises TimeoutError: saying what did not happen.
        """
        processes.wait_until(condition, what, timeout, 0.5)

    def wait_for_status(self, server: Any, status: str) -> Any:
        """Wait until nothing is under way for a server and it has that status; the result is what Nova says of it then.

        :raises RuntimeError: if it is in error instead, saying which.
        """
        found: list[Any] = []

        def has_it() -> bool:
            found[:] = [self.api.compute.get_server(server)]
            if found[0].status == "ERROR" != status:
                raise RuntimeError(f"{found[0].name} was to become {status}: {found[0].fault}")
            return bool(found[0].status == status and found[0].task_state is None)

        self.wait_for(has_it, f"server {server.id} becoming {status}")
        return found[0]

    def wait_until_gone(self, server: Any) -> None:
        """Wait until Nova knows a server no more."""
        self.wait_for(lambda: self.api.compute.find_server(server.id) is None, f"server {server.id} being deleted")

    def stop(self) -> None:
        """End everything; the instances, too."""
        self.nova.stop()
        for server in (self.neutron, self.glance, self.placement, self.keystone, self.bus, self._database):
            server.stop()
        for node in self.nodes:
            node.stop()

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "OS_AUTH_URL": self.keystone.auth_url,
            "OS_USERNAME": "admin",
            "OS_PASSWORD": PASSWORD,
            "OS_PROJECT_NAME": "admin",
            "OS_USER_DOMAIN_NAME": "Default",
            "OS_PROJECT_DOMAIN_NAME": "Default",
            "OS_REGION_NAME": self.keystone.credentials()["region_name"],
            "OS_COMPUTE_API_VERSION": MICROVERSION,
        }

    def _credentials(self) -> dict[str, dict[str, str]]:
        # Nova lists all servers of a host for its administrator only.
        return {"placement": self.keystone.credentials("vmqos"), "nova": self.keystone.credentials()}

    def _make_nova(self) -> NovaServices:
        return NovaServices(self.workspace, self.make_database, self.bus.address)

    def _make_placement(self) -> Placement:
        return Placement(self.workspace, self.keystone, self.make_database("placement"), threads=4)

    def _connect(self) -> Any:
        access = {name.removeprefix("OS_").lower(): value for name, value in self._environment.items()}
        microversion = access.pop("compute_api_version")
        region = access.pop("region_name")
        return openstack.connect(
            load_yaml_config=False,
            load_envvars=False,
            auth=access,
            region_name=region,
            compute_default_microversion=microversion,
        )

    def _start_glance(self) -> None:
        self.glance.start(self.keystone)
        self.api = self._connect()
        for name, kind, content in ((IMAGE, "raw", b""), (CDROM, "iso", bytes(1 << 15) + VOLUME_DESCRIPTORS)):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.truncate(1 << 20)
                self.api.create_image(
                    name, filename=file.name, disk_format=kind, container_format="bare", visibility="public", wait=True
                )

    def _wait_until_known(self, node: Node) -> None:
        hostname = node.hostname
        self.wait_for(
            lambda: hostname in [found.name for found in self.api.compute.hypervisors()], f"Nova knowing {hostname}"
        )
        self.wait_for(lambda: self._has_ways(hostname), f"Placement knowing what {hostname} can promise")
        self.nodes.append(node)

    def _has_ways(self, hostname: str) -> bool:
        child = self.cache(hostname)
        return (
            child is not None
            and LLC_WAYS in self.placement.ask("GET", f"/resource_providers/{child['uuid']}/inventories")["inventories"]
        )

    def _timed(self, what: str, work: Callable[[], T]) -> Callable[[], T]:
        def timed() -> T:
            result = work()
            self._progress(what)
            return result

        return timed

    def _progress(self, what: str) -> None:
        self._say(f"[{time.monotonic() - self._begun:3.0f}s] {what}")


@contextmanager
def _at_once(workspace: Workspace) -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Do things in threads; if one fails, or somebody interrupts, end all that they have started before going on."""
    pool = ThreadPoolExecutor(4)
    submitted: list[Future[Any]] = []

    def submit(work: Callable[[], Any]) -> Future[Any]:
        submitted.append(pool.submit(work))
        return submitted[-1]

    try:
        yield submit
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in submitted):
            _end_processes(workspace)
            time.sleep(processes.POLL_INTERVAL)
        raise
    pool.shutdown()


def _end_processes(workspace: Workspace) -> None:
    for record in (workspace.path / "processes").iterdir():
        # Some end by themselves meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            if record.read_text().strip() == str(processes.start_time(int(record.name))):
                os.kill(int(record.name), signal.SIGKILL)
