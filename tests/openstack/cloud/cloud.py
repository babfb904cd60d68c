# SPDX-License-Identifier: Apache-2.0
"""A cloud of one node: Keystone, Placement, Glance, Neutron and Nova, and below them libvirt, resctrl and the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import openstack

from tests.openstack.servers.glance import Glance
from tests.openstack.servers.keystone import PASSWORD, Keystone
from tests.openstack.servers.mariadb import MariaDb
from tests.openstack.servers.neutron import Neutron
from tests.openstack.servers.nova_services import NovaServices
from tests.openstack.servers.placement import Placement
from tests.openstack.servers.process import clean, script
from tests.openstack.servers.rabbitmq import RabbitMq
from tools.lab import processes
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.workspace import Workspace
from vmqos.openstack.resources import LLC_WAYS, provider_name

HOST = "compute-1"
MICROVERSION = "2.96"
IMAGE = "nothing"
"""An image of zeros: the firmware finds nothing to boot, and idles."""

PATIENCE = 180.0
"""Seconds for what several services do together, on a busy machine too."""

Say = Callable[[str], None]
T = TypeVar("T")


class Cloud:
    """All of it, started by the constructor.

    :param say: takes a line about the progress.
    :ivar hostname: the compute node's hypervisor hostname.
    :ivar bus: the message broker, where Ceilometer's samples can go too.
    """

    def __init__(self, workspace: Workspace, say: Say) -> None:
        self._say, self._begun = say, time.monotonic()
        self.workspace = workspace
        self.simulator = Simulator(workspace)
        self.libvirt = PrivateLibvirt(workspace)
        self._database = MariaDb(workspace)
        self.bus = RabbitMq(workspace)
        with _at_once(workspace) as submit:
            nova = submit(self._timed("Nova's tables", self._make_nova))
            keystone = submit(self._timed("Keystone", lambda: Keystone(workspace)))
            neutron = submit(self._timed("Neutron's tables", lambda: Neutron(workspace, self._url("neutron"))))
            glance = submit(self._timed("Glance's tables", lambda: Glance(workspace, self._url("glance"))))
            host = submit(self._timed("resctrl, libvirtd", self._start_host))
            self.keystone = keystone.result()
            placement = submit(self._timed("Placement", self._make_placement))
            self.glance, self.neutron, self.nova = glance.result(), neutron.result(), nova.result()
            started = [
                submit(self._timed("Neutron", lambda: self.neutron.start(self.keystone, self.bus.url()))),
                submit(self._timed("Glance", lambda: self.glance.start(self.keystone))),
                submit(self._timed("Nova's API", lambda: self.nova.start(self.keystone))),
            ]
            self.placement = placement.result()
            for service in (host, *started):
                service.result()
        self.nova.start_compute(HOST, self.libvirt)
        self.hostname: str = self.libvirt.connection().getHostname()
        self.agent = Agent(
            workspace,
            resctrl=self.simulator.root,
            sysfs=self.simulator.sysfs,
            uri=self.libvirt.uri,
            run_dir=self.libvirt.run_dir,
            options={
                "agent": {"audit_interval": 0.5, "retry_delay_min": 0.1, "retry_delay_max": 2.0},
                "http": {"port": 0},
                "placement": self.keystone.credentials("vmqos"),
            },
        )
        self.agent.start()
        self.api = self._connect()
        self._make_image()
        self._wait_for_the_compute_node()
        self._progress("a cloud with one compute node")

    def provider(self, name: str) -> dict[str, Any] | None:
        """A resource provider, as Placement has it."""
        found = self.placement.ask("GET", f"/resource_providers?name={name}")["resource_providers"]
        return next(iter(found), None)

    def client(self, *arguments: str, fails: bool = False) -> str:
        """What the ``openstack`` command prints; or says as an error, where it has to fail.

        :raises AssertionError: if it ends otherwise than expected, with what it said.
        """
        return self.run(script("openstack"), *arguments, fails=fails)

    def run(self, *command: str | Path, fails: bool = False) -> str:
        """The same for any command that finds the cloud in the environment."""
        environment = {**clean(os.environ), **self._environment}
        done = subprocess.run([str(word) for word in command], env=environment, text=True, capture_output=True)
        assert bool(done.returncode) is fails, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float = PATIENCE) -> None:
        """Wait until it is true.

        :raises TimeoutError: saying what did not happen.
        """
        processes.wait_until(lambda: bool(condition()), what, timeout, 0.2)

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
        self.agent.kill()
        self.nova.stop()
        for server in (self.neutron, self.glance, self.placement, self.keystone, self.bus, self._database):
            server.stop()
        for domain in self.libvirt.connection().listAllDomains():
            if domain.isActive():
                domain.destroy()
        self.libvirt.stop()
        self.simulator.stop()

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

    def _url(self, name: str) -> str:
        return self._database.create(name)

    def _make_nova(self) -> NovaServices:
        return NovaServices(self.workspace, self._url, self.bus.address)

    def _make_placement(self) -> Placement:
        return Placement(self.workspace, self.keystone, self._url("placement"), threads=4)

    def _start_host(self) -> None:
        self.simulator.start()
        self.libvirt.start()

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

    def _make_image(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(1 << 20)
            self.api.create_image(
                IMAGE, filename=file.name, disk_format="raw", container_format="bare", visibility="public", wait=True
            )

    def _wait_for_the_compute_node(self) -> None:
        self.wait_for(lambda: list(self.api.compute.hypervisors()), "Nova knowing its compute node")
        self.wait_for(self._has_room, "Placement knowing what the agent can promise")

    def _has_room(self) -> bool:
        child = self.provider(provider_name(self.hostname))
        return child is not None and LLC_WAYS in self.of_provider(child["uuid"], "inventories")

    def of_provider(self, uuid: str, what: str) -> Any:
        """A provider's inventories, usages or allocations."""
        return self.placement.ask("GET", f"/resource_providers/{uuid}/{what}")[what]

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
        if record.read_text().strip() == str(processes.start_time(int(record.name))):
            os.kill(int(record.name), signal.SIGKILL)
