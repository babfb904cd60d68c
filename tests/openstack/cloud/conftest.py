# SPDX-License-Identifier: Apache-2.0
"""A cloud of one compute node, started once for the tests of this directory and ended after the last of them."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from tests.functional import conftest as functional
from tests.openstack.cloud.cloud import IMAGE, Cloud
from tests.openstack.servers.process import program, script
from tools.lab.workspace import Workspace

workspace = functional.workspace

PROGRAMS = (("mariadbd", "mariadb-server-core"), ("rabbitmq-server", "rabbitmq-server"), ("qemu-img", "qemu-utils"))
SCRIPTS = ("keystone-manage", "placement-manage", "glance-manage", "neutron-db-manage", "nova-compute", "openstack")


class MakeServer(Protocol):
    """Start a server without a network, and wait for it.

    :param flavor: its name.
    :param status: what it is to become.
    :param image: what it boots from.
    """

    def __call__(self, flavor: str, *, status: str = ..., image: str = ...) -> Any: ...


@pytest.fixture(scope="package")
def cloud(workspace: Workspace, request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """The cloud, with flavors ``plain``, ``w2`` and ``w4``."""
    try:
        for name, package in PROGRAMS:
            program(name, package)
        for name in SCRIPTS:
            script(name)
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    capture = request.config.pluginmanager.getplugin("capturemanager")

    turn = threading.Lock()

    def say(line: str) -> None:
        with turn, capture.global_and_fixture_disabled():
            print(f"\n{line}", end="", file=sys.stderr, flush=True)

    try:
        started = Cloud(workspace, say)
    except BaseException:
        for log in sorted(workspace.path.glob("*/log")):
            if log.is_file():
                print(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    for name, ways in (("plain", 0), ("w2", 2), ("w4", 4)):
        started.api.compute.create_flavor(name=name, ram=64, vcpus=1, disk=0)
        if ways:
            started.run(script("vmqos"), "flavor", "set", name, "--cache-ways", str(ways))
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def _logs(cloud: Cloud) -> Iterator[None]:
    """What the services said meanwhile; pytest shows it with a test that failed."""
    logs = [*cloud.nova.logs, *(log for node in cloud.nodes for log in (node.agent.log, node.agent.gateway.log))]
    before = {log: log.stat().st_size for log in logs}
    yield
    for log in logs:
        with log.open(errors="replace") as file:
            file.seek(before[log])
            print(f"--- {log}\n{file.read()[-6000:]}")


_numbers = itertools.count(1)


@pytest.fixture
def make_server(cloud: Cloud) -> Iterator[MakeServer]:
    """See :class:`MakeServer`. At the test's end the servers are deleted."""
    made = []

    def make(flavor: str, *, status: str = "ACTIVE", image: str = IMAGE) -> Any:
        server = cloud.api.compute.create_server(
            name=f"server-{next(_numbers)}",
            flavor_id=cloud.api.compute.find_flavor(flavor, ignore_missing=False).id,
            image_id=cloud.api.image.find_image(image, ignore_missing=False).id,
            networks="none",
        )
        made.append(server)
        return cloud.wait_for_status(server, status)

    yield make
    for server in made:
        cloud.api.compute.delete_server(server, ignore_missing=True)
    for server in made:
        cloud.wait_until_gone(server)
