# SPDX-License-Identifier: Apache-2.0
"""The connection against a real libvirtd: which VMs run, word of changes, and life after the daemon's death."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import libvirt
import pytest

from tests.functional.conftest import MakeVm, WaitFor
from tests.functional.hypervisor.conftest import Watched
from tools.lab import vms
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.vms import RunningVm
from vmqos.hypervisor import exceptions
from vmqos.hypervisor.connection import Connection

LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
RNG = "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>"


QUIET = 1.0
"""Seconds without any word: what a start has to say comes in several parts, and the last ones late."""


def wait_for_silence(watched: Watched, wait_for: WaitFor) -> None:
    """Wait until no word has come for a while, and forget what has come."""
    seen, since = len(watched.changes), time.monotonic()

    def is_silent() -> bool:
        nonlocal seen, since
        if len(watched.changes) != seen:
            seen, since = len(watched.changes), time.monotonic()
        return time.monotonic() > since + QUIET

    wait_for(is_silent, "no more word of what was")
    watched.changes.clear()


def hear_all_of_the_starts(watched: Watched, make_vm: MakeVm, wait_for: WaitFor, *started: RunningVm) -> str:
    """Start one more VM: libvirtd tells in order, so what the starts before it have to say has come when its word does.

    :returns: its UUID, of which word may come later.
    """
    last = make_vm()
    wait_for(lambda: {last.uuid, *(vm.uuid for vm in started)} <= set(watched.changes), "word of all starts")
    wait_for_silence(watched, wait_for)
    return last.uuid


def resize(vm: RunningVm) -> None:
    """Change the running VM's metadata."""
    flavor = '<flavor name="w4"><extraSpecs><extraSpec name="hw:cache_ways">4</extraSpec></extraSpecs></flavor>'
    element = f'<instance xmlns="{vms.NOVA_NAMESPACE}">{flavor}</instance>'
    vm.domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, element, "nova", vms.NOVA_NAMESPACE, LIVE)


def test_running_vms_are_listed_with_libvirts_numbers(watched: Watched, make_vm: MakeVm) -> None:
    first, second = make_vm(), make_vm()
    assert watched.connection.list_running() == {first.uuid: first.domain.ID(), second.uuid: second.domain.ID()}
    second.domain.suspend()
    assert second.uuid in watched.connection.list_running()
    first.domain.destroy()
    assert watched.connection.list_running() == {second.uuid: second.domain.ID()}


def test_a_vm_is_described_with_what_nova_wrote(watched: Watched, make_vm: MakeVm) -> None:
    vm = make_vm({"hw:cache_ways": "2", "quota:a<b>&": '"\u00fc'}, name="instance-0000beef")
    described = watched.connection.describe(vm.uuid)
    assert described is not None
    assert (described.uuid, described.name, described.libvirt_id) == (vm.uuid, "instance-0000beef", vm.domain.ID())
    assert described.process.pid == vm.pid
    assert not described.has_cachetune
    assert described.metadata is not None
    assert described.metadata.extra_specs == {"hw:cache_ways": "2", "quota:a<b>&": '"\u00fc'}
    assert (described.metadata.flavor, described.metadata.project) == ("test", vms.PROJECT)
    assert described.metadata_error == ""


def test_a_vm_whose_metadata_are_not_novas_is_described_all_the_same(watched: Watched, make_vm: MakeVm) -> None:
    described = watched.connection.describe(make_vm(metadata="<metadata>hw:cache_ways=2</metadata>").uuid)
    assert described is not None
    assert described.metadata is None
    assert described.metadata_error == ""


def test_metadata_that_make_no_sense_are_reported(watched: Watched, make_vm: MakeVm) -> None:
    metadata = f'<metadata><instance xmlns="{vms.NOVA_NAMESPACE}"><flavor/></instance></metadata>'
    described = watched.connection.describe(make_vm(metadata=metadata).uuid)
    assert described is not None
    assert "the flavor has no name" in described.metadata_error


def test_a_vm_that_does_not_run_is_not_described(
    watched: Watched, make_vm: MakeVm, libvirt_connection: libvirt.virConnect
) -> None:
    vm = make_vm()
    assert watched.connection.describe("00000000-0000-0000-0000-000000000000") is None
    watched.connection.list_running()
    vm.domain.destroy()
    assert watched.connection.describe(vm.uuid) is None
    vm.domain.undefine()
    assert watched.connection.describe(vm.uuid) is None


def test_the_process_is_found_without_a_pid_file(libvirt_host: PrivateLibvirt, make_vm: MakeVm) -> None:
    vm = make_vm()
    connection = Connection(libvirt_host.uri, lambda uuid: None, run_dir="/nonexistent")
    connection.start(wait=True)
    described = connection.describe(vm.uuid)
    connection.close()
    assert described is not None
    assert described.process.pid == vm.pid


CHANGES: dict[str, Callable[[RunningVm], object]] = {
    "suspend": lambda vm: vm.domain.suspend(),
    "resume": lambda vm: vm.domain.resume(),
    "pin a vCPU": lambda vm: vm.domain.pinVcpu(0, (True,)),
    "pin the emulator": lambda vm: vm.domain.pinEmulator((True,)),
    "pin an I/O thread": lambda vm: vm.domain.pinIOThread(1, (True,), LIVE),
    "plug a device": lambda vm: vm.domain.attachDeviceFlags(RNG, LIVE),
    "change the metadata": resize,
    "stop": lambda vm: vm.domain.destroy(),
    "start": lambda vm: vm.domain.create(),
    "kill QEMU": lambda vm: os.kill(vm.pid, signal.SIGKILL),
    "start again": lambda vm: vm.domain.create(),
}


def test_every_change_of_a_vm_is_reported_and_of_that_vm_alone(
    watched: Watched, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    vm, other = make_vm(), make_vm()
    last = hear_all_of_the_starts(watched, make_vm, wait_for, vm, other)
    for name, change in CHANGES.items():
        # What the last change has still to say must not be taken for this one.
        time.sleep(0.2)
        watched.changes.clear()
        change(vm)
        wait_for(lambda: vm.uuid in watched.changes, f"word of: {name}")
        assert set(watched.changes) - {last} == {vm.uuid}, name
        if name == "kill QEMU":
            wait_for(lambda: not vm.domain.isActive(), "libvirt's taking note of the end")


def test_what_a_vm_is_to_be_the_next_time_is_no_news(
    watched: Watched, make_vm: MakeVm, wait_for: WaitFor, libvirt_connection: libvirt.virConnect
) -> None:
    vm, other = make_vm(), make_vm()
    last = hear_all_of_the_starts(watched, make_vm, wait_for, vm, other)
    vms.define(libvirt_connection, vms.Vm(vm.name, vms.Flavor("larger", {"hw:cache_ways": "9"}), uuid=vm.uuid))
    resize(other)
    wait_for(lambda: other.uuid in watched.changes, "word of the change of the other one, which runs")
    assert set(watched.changes) - {last} == {other.uuid}
    vm.domain.destroy()
    vm.domain.rename("renamed")
    vm.domain.create()
    described = watched.connection.describe(vm.uuid)
    assert described is not None
    assert described.name == "renamed"


def test_a_resize_shows_in_the_next_description(watched: Watched, make_vm: MakeVm) -> None:
    vm = make_vm({"hw:cache_ways": "2"})
    resize(vm)
    described = watched.connection.describe(vm.uuid)
    assert described is not None
    assert described.metadata is not None
    assert described.metadata.extra_specs == {"hw:cache_ways": "4"}


@pytest.mark.parametrize("end", [PrivateLibvirt.stop, PrivateLibvirt.kill])
def test_it_comes_back_after_the_daemon_did(
    watched: Watched, make_vm: MakeVm, wait_for: WaitFor, libvirt_host: PrivateLibvirt, end: Callable[[object], None]
) -> None:
    vm = make_vm()
    before = watched.connection.describe(vm.uuid)
    end(libvirt_host)
    wait_for(lambda: not watched.connection.is_connected, "the loss of libvirtd")
    assert watched.connection.last_error
    with pytest.raises(exceptions.HypervisorUnreachable):
        watched.connection.list_running()
    watched.changes.clear()
    libvirt_host.start()
    wait_for(lambda: watched.connection.is_connected, "libvirtd's return")
    wait_for(lambda: None in watched.changes, "the call to look at everything")
    assert watched.connection.last_error == ""
    assert watched.connection.list_running().keys() == {vm.uuid}
    assert watched.connection.describe(vm.uuid) == before
    watched.changes.clear()
    # libvirtd says nothing of a QEMU that dies before it has found its way back to it, which a suspend waits for.
    fresh = libvirt_host.connect()
    fresh.lookupByUUIDString(vm.uuid).suspend()
    fresh.close()
    wait_for(lambda: vm.uuid in watched.changes, "word over the new connection")


def test_a_daemon_that_hangs_is_given_up(watched: Watched, wait_for: WaitFor, libvirt_host: PrivateLibvirt) -> None:
    pid = libvirt_host.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(exceptions.HypervisorUnreachable, match="keepalive"):
            watched.connection.list_running()
        assert not watched.connection.is_connected
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: watched.connection.is_connected, "the way back")
    assert watched.connection.list_running() == {}


def test_callers_survive_the_loss_under_their_feet(
    watched: Watched, make_vm: MakeVm, wait_for: WaitFor, libvirt_host: PrivateLibvirt
) -> None:
    vm, stop, unexpected = make_vm(), threading.Event(), list[BaseException]()

    def ask() -> None:
        while not stop.is_set():
            try:
                watched.connection.list_running()
                watched.connection.describe(vm.uuid)
            except exceptions.HypervisorUnreachable:
                time.sleep(0.001)
            except BaseException as error:
                unexpected.append(error)

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    for _ in range(3):
        libvirt_host.kill()
        libvirt_host.start()
        wait_for(lambda: watched.connection.is_connected, "libvirtd's return")
    stop.set()
    for caller in callers:
        caller.join()
    assert not unexpected


def test_several_connections_live_side_by_side_and_leave_nothing(
    libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    def sockets() -> set[str]:
        names = (f"/proc/self/fd/{descriptor}" for descriptor in os.listdir("/proc/self/fd"))
        return {link for name in names if os.path.exists(name) and (link := os.readlink(name)).startswith("socket:")}

    make_vm()
    before = sockets()
    heard: list[list[str | None]] = [[], []]
    connections = [Connection(libvirt_host.uri, each.append, str(libvirt_host.run_dir)) for each in heard]
    for connection in connections:
        connection.start(wait=True)
    vm = make_vm()
    for each in heard:
        wait_for(lambda each=each: vm.uuid in each, "word of the start")  # type: ignore[misc]
    connections[0].close()
    assert connections[1].list_running().keys() >= {vm.uuid}
    heard[1].clear()
    vm.domain.suspend()
    wait_for(lambda: vm.uuid in heard[1], "word over the connection that is left")
    connections[1].close()
    # The ends of those that opened connections ahead may be late, also of connections before this test's.
    wait_for(lambda: not any(thread.name.startswith("libvirt-") for thread in threading.enumerate()), "all ending")
    wait_for(lambda: sockets() <= before, "every connection being closed")


def test_a_listener_that_fails_does_not_end_the_connection(
    libvirt_host: PrivateLibvirt, make_vm: MakeVm, wait_for: WaitFor
) -> None:
    called: list[str | None] = []

    def fail(uuid: str | None) -> None:
        called.append(uuid)
        raise RuntimeError("the listener's fault")

    connection = Connection(libvirt_host.uri, fail)
    connection.start(wait=True)
    first, second = make_vm(), make_vm()
    wait_for(lambda: {None, first.uuid, second.uuid} <= set(called), "word of both VMs")
    assert connection.is_connected
    connection.close()
