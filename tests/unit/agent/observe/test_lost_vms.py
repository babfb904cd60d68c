# SPDX-License-Identifier: Apache-2.0
"""A VM that libvirt has lost keeps its groups while its QEMU lives, also under an agent that was started later."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace

import pytest

from tests.unit.agent.host import CLASS, OWN, SHARED, Host, MakeHost
from tests.unit.agent.loop_host import LONG
from tests.unit.eventually import eventually
from vmqos.agent.observe import command_lines, lost_vms
from vmqos.allocation import PromiseState
from vmqos.hypervisor import exceptions, processes
from vmqos.hypervisor.model import VirtualMachine
from vmqos.resctrl import tasks

SHIPPED = command_lines.PATIENCE


def lose(host: Host, uuid: str) -> VirtualMachine:
    """libvirtd is restarted, and lists the VM no longer; so is the agent."""
    vm = host.libvirt.vms.pop(uuid)
    host.restart()
    return vm


def end(vm: VirtualMachine, host: Host) -> None:
    """The VM's process ends."""
    child = next(child for child in host._children if child.pid == vm.process.pid)
    child.kill()
    child.wait()


def test_its_own_group_stays_as_it_is_until_its_process_ends(host: Host) -> None:
    uuid, other = host.boot(OWN, threads=1), host.boot(OWN)
    host.settle()
    group, mask = f"vmqos.{uuid}", host.mask(f"vmqos.{uuid}")
    vm = lose(host, uuid)
    changes = list[str]()
    host.resctrl.before = changes.append
    host.settle()
    for everything in (False, True, False):
        host.run(everything=everything)
    host.resctrl.before = lambda path: None
    assert host.groups() == {group, f"vmqos.{other}"} and host.mask(group) == mask
    assert processes.tasks(vm.process.pid) <= tasks.read_tasks(host.resctrl, group)
    assert host.reconciler.lost == {vm.process}
    assert host.told(other).state is PromiseState.KEPT
    end(vm, host)
    host.settle()
    assert host.groups() == {f"vmqos.{other}"} and not host.reconciler.lost


def test_nobody_else_gets_its_ways(host: Host) -> None:
    uuid = host.boot({"hw:cache_ways": "5"}, threads=1)
    host.settle()
    vm = lose(host, uuid)
    late = host.boot({"hw:cache_ways": "5"})
    host.settle()
    assert host.told(late).state is PromiseState.PENDING and host.groups() == {f"vmqos.{uuid}"}
    end(vm, host)
    host.settle()
    assert host.told(late).state is PromiseState.KEPT and host.groups() == {f"vmqos.{late}"}


@pytest.mark.parametrize(
    ("specs", "directory"), [(SHARED, f"{CLASS}/mon_groups/vmqos.{{}}"), ({}, "mon_groups/vmqos.{}")]
)
def test_its_monitoring_group_stays_and_the_class_with_it(host: Host, specs: dict[str, str], directory: str) -> None:
    uuid = host.boot(specs, threads=1)
    host.settle()
    vm = lose(host, uuid)
    host.settle()
    host.run(everything=True)
    assert processes.tasks(vm.process.pid) <= tasks.read_tasks(host.resctrl, directory.format(uuid))
    end(vm, host)
    host.settle()
    assert not host.groups() and not host.graphs()


def test_its_class_stays_although_no_monitoring_group_tells_of_it(make_host: MakeHost) -> None:
    host = make_host("cascade-lake")
    uuid = host.boot(SHARED, threads=1)
    host.settle()
    host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{uuid}")
    vm = lose(host, uuid)
    host.settle()
    host.run(everything=True)
    assert processes.tasks(vm.process.pid) <= tasks.read_tasks(host.resctrl, CLASS)
    end(vm, host)
    host.settle()
    assert not host.groups()


def test_once_libvirt_lists_it_again_it_is_a_vm_like_any_other(host: Host) -> None:
    uuid = host.boot(OWN, threads=1)
    host.settle()
    mask = host.mask(f"vmqos.{uuid}")
    vm = lose(host, uuid)
    host.settle()
    host.libvirt.vms[uuid] = vm
    host.settle()
    assert host.told(uuid).state is PromiseState.KEPT and host.mask(f"vmqos.{uuid}") == mask
    assert not host.reconciler.lost
    host.libvirt.resize(uuid, {})
    host.settle()
    assert not host.groups()


def test_a_process_that_is_no_vm_keeps_no_group(host: Host) -> None:
    uuid = host.boot(OWN, threads=1)
    host.settle()
    host.resctrl.write(f"vmqos.{uuid}/tasks", str(os.getpid()))
    end(lose(host, uuid), host)
    host.settle()
    assert not host.groups()


def take_for_the_kernels(monkeypatch: pytest.MonkeyPatch, vm: VirtualMachine) -> list[int]:
    """The VM's process becomes one of the kernel's threads, such as ``kvm-pit/PID``; the PIDs that are asked then."""
    identify, asked = processes.identify, list[int]()

    def identify_it(tid: int) -> processes.Identity:
        found = identify(tid)
        return replace(found, is_kernel_thread=True) if found.tgid == vm.process.pid else found

    def does_not_say(pid: int, arguments: tuple[bytes, ...]) -> bool:
        asked.append(pid)
        raise exceptions.ProcessUnreadable(pid=pid, error="it does not tell")

    monkeypatch.setattr(processes, "identify", identify_it)
    monkeypatch.setattr(processes, "says", does_not_say)
    return asked


@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_a_thread_of_the_kernels_is_no_vm_and_is_not_asked(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, specs: dict[str, str]
) -> None:
    host = make_host("cascade-lake")
    uuid = host.boot(specs, threads=1)
    host.settle()
    if specs is SHARED:
        host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{uuid}")
    asked = take_for_the_kernels(monkeypatch, lose(host, uuid))
    with caplog.at_level(logging.WARNING, "vmqos"):
        host.run(everything=True)
        host.settle()
    assert not asked and not host.groups() and not host.reconciler.lost
    assert not [record for record in caplog.records if "does not list" in record.getMessage()]


def test_a_thread_of_the_kernels_in_a_class_hides_no_vm(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_vms, "MOST_LOOKS", 1)
    host = make_host("cascade-lake")
    uuids = [host.boot(SHARED, threads=1) for _ in range(2)]
    host.settle()
    for uuid in uuids:
        host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{uuid}")
    first, second = sorted((lose(host, uuid) for uuid in uuids), key=lambda vm: vm.process.pid)
    take_for_the_kernels(monkeypatch, first)
    host.run(everything=True)
    assert host.reconciler.lost == {second.process}


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("specs", [OWN, SHARED])
def test_a_process_that_does_not_let_its_command_line_be_read_holds_nothing_up_and_may_be_the_vms(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, specs: dict[str, str], everything: bool
) -> None:
    host = make_host("cascade-lake")
    monkeypatch.setattr(command_lines, "PATIENCE", SHIPPED)
    uuid = host.boot(specs, threads=1)
    host.settle()
    if specs is SHARED:
        host.resctrl.rmdir(f"{CLASS}/mon_groups/vmqos.{uuid}")
    hung, asked, answer = threading.Event(), list[int](), False
    group = next(iter(host.groups()))

    def says(pid: int, arguments: tuple[bytes, ...]) -> bool:
        asked.append(pid)
        assert hung.wait(LONG)
        return answer

    monkeypatch.setattr(processes, "says", says)
    vm = lose(host, uuid)
    for _ in range(3):
        began = time.monotonic()
        host.run(everything=everything)
        assert time.monotonic() - began < LONG / 2, "the caller waits for no process"
        assert host.groups() == {group} and host.reconciler.lost == {vm.process}
    assert asked == [vm.process.pid], "it is asked once"
    hung.set()
    eventually(lambda: not any(thread.name == "command-line" for thread in threading.enumerate()))
    monkeypatch.setattr(command_lines, "PATIENCE", LONG)
    # Classes are looked into by an audit.
    host.run(everything=True)
    host.settle()
    assert not host.groups() and not host.reconciler.lost


def test_the_log_tells_of_it_once(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    uuid = host.boot(OWN, threads=1)
    host.settle()
    vm = lose(host, uuid)
    with caplog.at_level(logging.WARNING, "vmqos"):
        for _ in range(3):
            host.run(everything=True)
    told = [record.getMessage() for record in caplog.records if "does not list" in record.getMessage()]
    assert len(told) == 1 and uuid in told[0] and str(vm.process.pid) in told[0]
