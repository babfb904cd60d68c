# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a private libvirtd with real QEMU processes, the simulator, and the agent between them.

Each pytest process (each worker of pytest-xdist) has one workspace and one libvirtd; each test has its own simulator,
agent and VMs, and leaves none of them. A machine that lacks something fails the tests and says what; none is skipped.

A test usually asks for ``agent``, ``resctrl`` and ``make_vm``::

    def test_a_vm_with_ways_gets_them(agent, resctrl, make_vm, wait_for):
        vm = make_vm({"hw:cache_ways": "2"})
        wait_for(lambda: agent.get(f"/v1/vms/{vm.uuid}")["state"] == "kept", "the VM's promise being kept")

Another machine than ``cascade-lake``, and mount options::

    @pytest.mark.parametrize("simulator", ["minimal", ("cascade-lake", "cdp")], indirect=True)

``tests/kernel/agent`` runs some of the tests on the kernel's own resctrl, with fixtures of the same names.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import libvirt
import pytest

from tools.lab import kvm, processes, versions, vms
from tools.lab.agent import Agent, Options
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.program import Launch, Preloaded
from tools.lab.resctrl import Resctrl
from tools.lab.simulator import Simulator
from tools.lab.stalls import Stalls
from tools.lab.workspace import Workspace

NOTHING_ASKED: Mapping[str, str] = {}

NUMBERS = """\
<domstatus state="running" reason="booted" pid="0">
  <monitor path="/nowhere" type="unix"/>
  <domain type="qemu" id="100000">
    <name>numbers</name>
    <uuid>6e33a463-cfb7-40e4-8ced-88dc1df76034</uuid>
    <memory>1024</memory>
    <os><type arch="x86_64" machine="pc">hvm</type></os>
  </domain>
</domstatus>
"""
"""The status file of a VM that has died while libvirtd was away. What is started next has a higher number."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a machine is, and what its tests wait for.

    :ivar agent: the agent's options: a test can't wait for the minute that an operator can.
    :ivar launch: how agents are started.
    :ivar patience: how many times as long a test waits as it would on a machine of its own.
    :ivar give_up: seconds after which a test that names none gives up waiting: no bound of what is tested.
    :ivar poll_interval: seconds from one look to the next.
    """

    agent: Options
    launch: Launch
    patience: int = 1
    give_up: float = 60.0
    poll_interval: float = 0.05


class MakeVm(Protocol):
    """Start a VM.

    :param extra_specs: the flavor's; ``None`` leaves them out of the metadata, as Nova did before 2025.2.
    :param fields: of :class:`tools.lab.vms.Vm`, such as ``vcpus=2``, ``max_vcpus=4``, ``cpuset="0"``,
        ``name="instance-00000001"``, ``metadata="<metadata/>"``.
    """

    def __call__(self, extra_specs: Mapping[str, str] | None = ..., **fields: Any) -> vms.RunningVm: ...


class MakeAgent(Protocol):
    """Configure an agent for the test's resctrl and libvirtd, without starting it.

    :param options: values by section and option, over those that the fixture sets.
    :param name: tells several agents of one test apart.
    :param launch: how it is started, where not as the others are.
    """

    def __call__(self, options: Options | None = ..., name: str = ..., launch: Launch | None = ...) -> Agent: ...


class WaitFor(Protocol):
    """Wait until ``condition`` is true; ``TimeoutError`` says that ``what`` did not happen.

    An ``OSError`` or ``RuntimeError`` in the condition, such as an API that does not answer yet, counts as not true.
    So does an answer that breaks off.

    :param timeout: seconds, where that is part of what is tested; see :class:`Pace` otherwise.
    """

    def __call__(self, condition: Callable[[], bool], what: str, timeout: float | None = ...) -> None: ...


@pytest.fixture(scope="session")
def workspace() -> Iterator[Workspace]:
    """The directory that everything of this pytest process is in, and leaves with, even after SIGKILL."""
    missing = []
    if os.geteuid() != 0:
        missing.append("root's rights (for mounts, namespaces and cgroups)")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        missing.append("/dev/fuse (modprobe fuse; in a container, pass the device in)")
    missing.extend(program for program in ("qemu-system-x86_64", "fusermount3", "unshare") if not shutil.which(program))
    if missing:
        pytest.fail(f"these tests need: {'; '.join(missing)}; tools/test installs packages.", pytrace=False)
    with Workspace() as opened:
        yield opened


@pytest.fixture(scope="session")
def tree_before(workspace: Workspace) -> Path:
    """The version from which hosts are upgraded to this one; without it the tests that ask for it fail."""
    return extracted(workspace, versions.BEFORE)


def extracted(workspace: Workspace, commit: str) -> Path:
    """The program of a commit; where git does not have it, the test fails."""
    tree = workspace.path / f"before-{commit}"
    try:
        return tree if tree.exists() else versions.extract(tree, commit)
    except versions.CommitMissing as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def _session_libvirt(workspace: Workspace) -> Iterator[PrivateLibvirt]:
    try:
        daemon = PrivateLibvirt(workspace)
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def libvirt_host(_session_libvirt: PrivateLibvirt) -> Iterator[PrivateLibvirt]:
    """The private libvirtd, running and without VMs; a test may stop, kill and restart it."""
    if _session_libvirt.pid is None:
        _session_libvirt.start()
    yield _session_libvirt
    if _session_libvirt.pid is None:
        _session_libvirt.start()
    remove_all_vms(_session_libvirt)


def remove_all_vms(host: PrivateLibvirt) -> None:
    """End and undefine every VM of a private libvirtd."""
    connection = host.connection()
    # The end of a VM takes a second of waiting, mostly for its cgroups.
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda domain: vms.remove(connection, domain.UUIDString()), connection.listAllDomains()))


@pytest.fixture(scope="module")
def other_host() -> Iterator[PrivateLibvirt]:
    """Another host, which VMs migrate to and come from: a libvirtd of which no agent knows.

    A VM that migrates has a process on each of the two hosts for a while, and /proc shows both. No agent may take one
    for the other, so these have numbers of libvirt's, which their cgroups tell, that the first host's VMs never get.
    """
    with Workspace() as workspace:
        other = PrivateLibvirt(workspace)
        other.run_dir.mkdir()
        (other.run_dir / "numbers.xml").write_text(NUMBERS)
        other.start()
        yield other
        other.stop()


@pytest.fixture
def libvirt_connection(libvirt_host: PrivateLibvirt) -> Iterator[libvirt.virConnect]:
    """A connection to the private libvirtd, made at the test's start: useless after a restart of it."""
    connection = libvirt_host.connect()
    yield connection
    with contextlib.suppress(libvirt.libvirtError):
        connection.close()


@pytest.fixture
def virt_type(request: pytest.FixtureRequest) -> str:
    """Software emulation, which starts as fast anywhere; of an indirect parameter ``fastest``, KVM where it works."""
    return kvm.virt_type() if getattr(request, "param", "") == "fastest" else "qemu"


_numbers = itertools.count(1)


@pytest.fixture
def simulator(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[Simulator]:
    """A mounted simulator: ``cascade-lake``, or the profile (and mount options) of an indirect parameter."""
    wanted = getattr(request, "param", "cascade-lake")
    profile, mount_options = wanted if isinstance(wanted, tuple) else (wanted, "")
    simulated = Simulator(workspace, profile, mount_options, name=f"resctrl-{next(_numbers)}")
    try:
        simulated.start()
        yield simulated
    finally:
        simulated.stop()


@pytest.fixture
def resctrl(simulator: Simulator) -> Resctrl:
    """What the test's agent works on."""
    return simulator


@pytest.fixture(scope="session")
def pace() -> Pace:
    """What a developer's machine and CI's can keep up with; several of them run at a time, so ports are any."""
    return Pace(
        {
            "agent": {"audit_interval": 0.2, "full_audit_interval": 2.0, "retry_delay_min": 0.1},
            "telemetry": {"interval": 0.5},
            "http": {"port": 0},
        },
        launch=Preloaded(["vmqos.agent.main"]),
    )


@pytest.fixture
def free_port() -> Iterator[int]:
    """A TCP port on loopback that is the test's until its end: for an agent or a server of its own, one at a time."""
    with socket.socket() as held:
        # Who asks for this port, and reuses addresses as servers do, gets it; who asks for any port gets another one.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def made_agents() -> list[Agent]:
    """The agents that the test has made, running or not."""
    return []


@pytest.fixture
def make_agent(
    workspace: Workspace, libvirt_host: PrivateLibvirt, resctrl: Resctrl, pace: Pace, made_agents: list[Agent]
) -> Iterator[MakeAgent]:
    """See :class:`MakeAgent`. Agents that still run at the test's end are ended; what they said is in the report."""

    def make(options: Options | None = None, name: str = "agent", launch: Launch | None = None) -> Agent:
        agent = Agent(
            workspace,
            resctrl=resctrl.root,
            sysfs=resctrl.sysfs,
            uri=libvirt_host.uri,
            run_dir=libvirt_host.run_dir,
            options=pace.agent,
            name=f"{name}-{next(_numbers)}",
            launch=launch or pace.launch,
        )
        agent.configure(options or {})
        made_agents.append(agent)
        return agent

    yield make
    for agent in made_agents:
        agent.end()
        for log in (agent.log, agent.gateway.log):
            if log.exists():
                # pytest shows it with a test that failed.
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-8000:]}")


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """A running agent with quick audits."""
    started = make_agent()
    started.start()
    return started


@pytest.fixture
def make_vm(libvirt_host: PrivateLibvirt, virt_type: str) -> MakeVm:
    """See :class:`MakeVm`."""

    def make(extra_specs: Mapping[str, str] | None = NOTHING_ASKED, **fields: Any) -> vms.RunningVm:
        name = fields.pop("name", f"instance-{next(_numbers):08x}")
        flavor = fields.pop("flavor", vms.Flavor("test", extra_specs))
        return vms.run(libvirt_host, vms.Vm(name=name, flavor=flavor, **{"virt_type": virt_type, **fields}))

    return make


@pytest.fixture
def wait_for(pace: Pace) -> WaitFor:
    """See :class:`WaitFor`."""
    return waiting(pace)


def waiting(pace: Pace) -> WaitFor:
    """See :class:`WaitFor`."""

    def wait(condition: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        def quietly() -> bool:
            try:
                return condition()
            except (OSError, RuntimeError, http.client.HTTPException):
                return False

        limit = pace.give_up if timeout is None else timeout * pace.patience
        processes.wait_until(quietly, what, limit, pace.poll_interval)

    return wait


@pytest.fixture
def stalls() -> Iterator[Stalls]:
    """Tells what something took without the time in which this machine had no CPU for it."""
    with Stalls() as watched:
        yield watched
