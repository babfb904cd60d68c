# SPDX-License-Identifier: Apache-2.0
"""Live migration from another libvirtd: the VM's groups are there before its memory comes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import libvirt
import pytest

from tests.functional.agent.conftest import WaitForVm, wait_until_told
from tests.functional.agent.test_cut_connection import HEADER
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, SHARED_3, all_in, group
from tests.functional.agent.test_starts import moved, stopped, vcpus
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, WaitFor
from tools.lab import vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace

REPLY = 1
"""``VIR_NET_REPLY`` in libvirt's virnetprotocol.x."""


@pytest.fixture(scope="module")
def other_host() -> Iterator[PrivateLibvirt]:
    """The host that the VM comes from."""
    with Workspace() as workspace:
        other = PrivateLibvirt(workspace)
        other.start()
        yield other
        other.stop()


class Gate:
    """Stands between who migrates a VM and the libvirtd that gets it, and keeps back the word that this one is ready.

    :param target: the socket of that libvirtd.
    :param pid_file: of the VM there. Who migrates asks one thing after the other, so the first answer that comes while
        this file is there is the one to the question that started the VM (``virDomainMigratePrepare3Params``).
    :param on_ready: called before this answer is passed on, and so before anything is asked of the sender.
    """

    def __init__(self, path: Path, target: Path, pid_file: Path, on_ready: Callable[[], None]) -> None:
        self.uri = f"qemu+unix:///system?socket={urllib.parse.quote(str(path))}"
        self._target, self._pid_file, self._on_ready = target, pid_file, on_ready
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            with client, socket.socket(socket.AF_UNIX) as server:
                server.connect(str(self._target))
                self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        is_ready = False
        while True:
            ready, _, _ = select.select([client, server], [], [])
            for source in ready:
                message = source.recv(1 << 20)
                if not message:
                    return
                is_answer = source is server and len(message) >= HEADER.size and HEADER.unpack_from(message)[4] == REPLY
                if is_answer and not is_ready and self._pid_file.exists():
                    is_ready = True
                    self._on_ready()
                (server if source is client else client).sendall(message)


class Arrival:
    """A VM whose memory does not come before :meth:`let_come`: the QEMU that sends it is stopped.

    :ivar vm: the VM on the host that it comes to.
    """

    def __init__(self, source: PrivateLibvirt, here: PrivateLibvirt, specs: Mapping[str, str]) -> None:
        self._error: libvirt.libvirtError | None = None
        self._source = source
        wanted = vms.Vm("arrival", vms.Flavor("flavor", specs), vcpus=2)
        self._leaving, self._here = vms.run(source, wanted), here
        self.vm = RunningVm(wanted.uuid, wanted.name, here)
        self._stopped, self._is_ready = contextlib.ExitStack(), threading.Event()
        self._gate = Gate(
            here.socket.with_name("gate-sock"), here.socket, here.run_dir / f"{wanted.name}.pid", self._stop_sender
        )
        self._thread = threading.Thread(target=self._migrate)
        self._thread.start()
        try:
            while not self._is_ready.wait(0.1):
                assert self._thread.is_alive(), self._error
            assert len(vcpus(self.vm)) == wanted.vcpus
        except BaseException:
            # The next test's VM has the same name.
            self.end()
            raise

    def _stop_sender(self) -> None:
        """The VM has its threads here; now libvirt needs the sender, and waits for it."""
        self._stopped.enter_context(stopped(self._leaving.pid))
        self._is_ready.set()

    def _migrate(self) -> None:
        try:
            with contextlib.closing(libvirt.open(self._gate.uri)) as there:
                parameters = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{self._here.run_dir}/incoming.sock"}
                self._leaving.domain.migrate3(there, parameters, libvirt.VIR_MIGRATE_LIVE)
        except libvirt.libvirtError as error:
            self._error = error

    def let_come(self) -> None:
        """Have the memory sent, and wait until the VM runs here."""
        self._stopped.close()
        self._thread.join(60)
        assert self._error is None, self._error

    def end(self) -> None:
        """End the migration, if it has not ended, and the VM that is left where it came from."""
        self._stopped.close()
        self._thread.join(60)
        self._gate.close()
        vms.remove(self._source.connection(), self.vm.uuid)


Arrive = Callable[[Mapping[str, str]], Arrival]


@pytest.fixture
def arrive(other_host: PrivateLibvirt, libvirt_host: PrivateLibvirt) -> Iterator[Arrive]:
    """Begin the migration of a VM to the host that the agent watches."""
    made: list[Arrival] = []

    def begin(specs: Mapping[str, str]) -> Arrival:
        made.append(Arrival(other_host, libvirt_host, specs))
        return made[-1]

    yield begin
    for arrival in made:
        arrival.end()


def own(vm: RunningVm, specs: Mapping[str, str]) -> str:
    return group(vm) if specs == EXCLUSIVE_2 else f"vmqos.shared-ways3/mon_groups/{group(vm)}"


@pytest.mark.parametrize("specs", [EXCLUSIVE_2, SHARED_3], ids=["exclusive", "shared"])
def test_the_memory_of_a_vm_comes_through_its_own_ways(
    agent: Agent,
    simulator: Simulator,
    tree: Tree,
    wait_for: WaitFor,
    wait_for_vm: WaitForVm,
    arrive: Arrive,
    specs: dict[str, str],
) -> None:
    wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "the first pass")
    arrival = arrive(specs)
    vm = arrival.vm
    wait_for(lambda: all_in(tree, own(vm, specs), vm), "all of its tasks being in its group before its memory comes")
    early = moved(simulator, vm)
    arrival.let_come()
    told = wait_for_vm(vm, "kept")
    assert all_in(tree, own(vm, specs), vm)
    assert moved(simulator, vm) & vcpus(vm) <= early, "nothing is left to be moved when it runs"
    assert told["outside_later"] < 0.01


@pytest.mark.parametrize("specs", [EXCLUSIVE_2, SHARED_3], ids=["exclusive", "shared"])
def test_its_memory_is_kept_out_of_its_ways_where_that_is_wanted(
    make_agent: MakeAgent,
    simulator: Simulator,
    tree: Tree,
    wait_for: WaitFor,
    arrive: Arrive,
    specs: dict[str, str],
) -> None:
    agent = make_agent({"libvirt": {"incoming_memory": "default-group"}})
    agent.start()
    wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "the first pass")
    arrival = arrive(specs)
    vm, directory = arrival.vm, own(arrival.vm, specs)
    outside = f"mon_groups/{group(vm)}"
    wait_for(lambda: tree.tasks(directory) == vcpus(vm), "its vCPUs alone being in its group")
    wait_for(lambda: vm.tasks().keys() - vcpus(vm) <= tree.tasks(outside), "the others being counted outside of it")
    early = moved(simulator, vm)
    arrival.let_come()
    wait_for(lambda: all_in(tree, directory, vm), "all of its tasks being in its group once it runs")
    assert moved(simulator, vm) & vcpus(vm) <= early, "a vCPU is there before its first instruction"
    wait_for(lambda: group(vm) not in tree.monitoring_groups(), "its group outside being gone")
    wait_until_told(agent, wait_for, vm, "kept")


def test_a_migration_that_fails_leaves_nothing(
    agent: Agent,
    tree: Tree,
    wait_for: WaitFor,
    arrive: Arrive,
) -> None:
    wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "the first pass")
    arrival = arrive(EXCLUSIVE_2)
    wait_for(lambda: group(arrival.vm) in tree.groups(), "its group")
    os.kill(arrival.vm.pid, signal.SIGKILL)
    arrival.end()
    wait_for(lambda: not tree.groups(), "its group being gone")
    wait_for(lambda: agent.get("/v1/vms")["vms"] == [], "the VM being told no more")
