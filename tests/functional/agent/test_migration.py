# SPDX-License-Identifier: Apache-2.0
"""Live migration from another libvirtd: the VM's groups are there before its memory comes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import libvirt
import pytest

from tests.functional.agent.conftest import WaitForVm, wait_until_told
from tests.functional.agent.stopped import stopped
from tests.functional.agent.test_lifecycle import EXCLUSIVE_2, SHARED_3, all_in, group
from tests.functional.agent.test_starts import moved, vcpus
from tests.functional.agent.tree import Tree
from tests.functional.conftest import MakeAgent, WaitFor
from tools.lab import vms
from tools.lab.agent import Agent
from tools.lab.libvirt_relay import REPLY, LibvirtRelay, Message
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm

STREAMS = [1, 4]
"""Connections that a VM's memory comes through: Nova has one, or some (``live_migration_parallel_connections``)."""

SLOWLY = 1
"""MiB a second at which memory is sent where the threads that receive it are looked at."""


class Gate:
    """Keeps back the word of the libvirtd that gets a VM that this one is ready, for a moment.

    :param pid_file: of the VM there. Who migrates asks one thing after the other, so the first answer that comes while
        this file is there is the one to the question that started the VM (``virDomainMigratePrepare3Params``).
    :param on_ready: called before this answer is passed on, and so before anything is asked of the sender.
    """

    def __init__(self, pid_file: Path, on_ready: Callable[[], None]) -> None:
        self._pid_file, self._on_ready = pid_file, on_ready
        self._is_ready = False

    def passes(self, message: Message) -> bool:
        if message.is_answer and message.kind == REPLY and not self._is_ready and self._pid_file.exists():
            self._is_ready = True
            self._on_ready()
        return True


class Arrival:
    """A VM whose memory does not come before :meth:`begin_to_come`: the QEMU that sends it is stopped.

    :param streams: connections that its memory comes through. With several, it comes slowly.
    :ivar vm: the VM on the host that it comes to.
    """

    def __init__(self, source: PrivateLibvirt, here: PrivateLibvirt, specs: Mapping[str, str], streams: int) -> None:
        self._error: libvirt.libvirtError | None = None
        self._streams = streams
        self._source = source
        wanted = vms.Vm("arrival", vms.Flavor("flavor", specs), vcpus=2)
        self._leaving, self._here = vms.run(source, wanted), here
        self.vm = RunningVm(wanted.uuid, wanted.name, here)
        self._stopped, self._is_ready = contextlib.ExitStack(), threading.Event()
        gate = Gate(here.run_dir / f"{wanted.name}.pid", self._stop_sender)
        self._relay = LibvirtRelay(here.socket.with_name("gate-sock"), here.socket, gate.passes)
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
            with contextlib.closing(libvirt.open(self._relay.uri)) as there:
                flags = libvirt.VIR_MIGRATE_LIVE
                parameters: dict[str, object] = {
                    libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{self._here.run_dir}/incoming.sock"
                }
                if self._streams > 1:
                    flags |= libvirt.VIR_MIGRATE_PARALLEL
                    parameters[libvirt.VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS] = self._streams
                    parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = SLOWLY
                self._leaving.domain.migrate3(there, parameters, flags)
        except libvirt.libvirtError as error:
            self._error = error

    def begin_to_come(self) -> None:
        """Have the memory sent from now on."""
        self._stopped.close()

    @contextlib.contextmanager
    def held_up(self) -> Iterator[None]:
        """No more memory is sent while the block runs, so that what receives it stays as it is."""
        with stopped(self._leaving.pid):
            yield

    def receivers(self) -> set[int]:
        """The threads that receive the memory, one a stream; where there is one stream, QEMU's first thread does."""
        return {tid for tid, name in self.vm.tasks().items() if name.startswith("multifdrecv")}

    def let_come(self) -> None:
        """Have the memory sent, and wait until the VM runs here."""
        self.begin_to_come()
        self._thread.join(60)
        assert self._error is None, self._error

    def end(self) -> None:
        """End the migration, if it has not ended, and the VM that is left where it came from."""
        self._stopped.close()
        self._thread.join(60)
        self._relay.close()
        vms.remove(self._source.connection(), self.vm.uuid)


class Arrive(Protocol):
    """Begins the migration of a VM."""

    def __call__(self, specs: Mapping[str, str], streams: int = 1) -> Arrival: ...


@pytest.fixture
def arrive(other_host: PrivateLibvirt, libvirt_host: PrivateLibvirt) -> Iterator[Arrive]:
    """Begin the migration of a VM to the host that the agent watches."""
    made: list[Arrival] = []

    def begin(specs: Mapping[str, str], streams: int = 1) -> Arrival:
        made.append(Arrival(other_host, libvirt_host, specs, streams))
        return made[-1]

    yield begin
    for arrival in made:
        arrival.end()


def own(vm: RunningVm, specs: Mapping[str, str]) -> str:
    return group(vm) if specs == EXCLUSIVE_2 else f"vmqos.shared-ways3/mon_groups/{group(vm)}"


def receivers_are_born_in(
    directory: str, arrival: Arrival, tree: Tree, simulator: Simulator, wait_for: WaitFor, streams: int
) -> None:
    """Have the memory of a VM sent; the threads that receive it are born in this group."""
    arrival.begin_to_come()
    wait_for(lambda: len(arrival.receivers()) == streams, "the threads that receive its memory")
    with arrival.held_up():
        receivers = arrival.receivers()
        assert receivers <= tree.tasks(directory)
        assert not receivers & moved(simulator, arrival.vm)
        assert len(receivers) == streams, "its memory came all the while"


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("specs", [EXCLUSIVE_2, SHARED_3], ids=["exclusive", "shared"])
def test_the_memory_of_a_vm_comes_through_its_own_ways(
    agent: Agent,
    simulator: Simulator,
    tree: Tree,
    wait_for: WaitFor,
    wait_for_vm: WaitForVm,
    arrive: Arrive,
    specs: dict[str, str],
    streams: int,
) -> None:
    wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "the first pass")
    arrival = arrive(specs, streams)
    vm = arrival.vm
    wait_for(lambda: all_in(tree, own(vm, specs), vm), "all of its tasks being in its group before its memory comes")
    early = moved(simulator, vm)
    if streams > 1:
        receivers_are_born_in(own(vm, specs), arrival, tree, simulator, wait_for, streams)
    arrival.let_come()
    told = wait_for_vm(vm, "kept")
    assert all_in(tree, own(vm, specs), vm)
    assert moved(simulator, vm) & vcpus(vm) <= early, "nothing is left to be moved when it runs"
    assert told["outside_later"] < 0.01


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("specs", [EXCLUSIVE_2, SHARED_3], ids=["exclusive", "shared"])
def test_its_memory_is_kept_out_of_its_ways_where_that_is_wanted(
    make_agent: MakeAgent,
    simulator: Simulator,
    tree: Tree,
    wait_for: WaitFor,
    arrive: Arrive,
    specs: dict[str, str],
    streams: int,
) -> None:
    agent = make_agent({"libvirt": {"incoming_memory": "default-group"}})
    agent.start()
    wait_for(lambda: agent.get("/v1/health")["status"] == "ok", "the first pass")
    arrival = arrive(specs, streams)
    vm, directory = arrival.vm, own(arrival.vm, specs)
    outside = f"mon_groups/{group(vm)}"
    wait_for(lambda: tree.tasks(directory) == vcpus(vm), "its vCPUs alone being in its group")
    wait_for(lambda: vm.tasks().keys() - vcpus(vm) <= tree.tasks(outside), "the others being counted outside of it")
    early = moved(simulator, vm)
    if streams > 1:
        receivers_are_born_in(outside, arrival, tree, simulator, wait_for, streams)
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
