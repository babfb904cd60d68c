# SPDX-License-Identifier: Apache-2.0
"""Which threads are vCPUs'; a process of the test's own gives its threads the names that QEMU gives them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from vmqos.hypervisor import exceptions, processes, vcpu_threads
from vmqos.hypervisor.model import Process, VirtualMachine

NAMES = ("qemu-system-x86", "CPU 1/KVM", "CPU 0/TCG", "CPU 12/KVM", "IO iothread1", "CPU 1/KVM", "ALL CPUs/TCG")
NAMED_THREADS = """
import sys, threading
def live(name, ready):
    open('/proc/thread-self/comm', 'w').write(name)
    print(name, threading.get_native_id(), sep=':', flush=True)
    ready.set()
    threading.Event().wait()
for name in sys.argv[1:]:
    ready = threading.Event()
    threading.Thread(target=live, args=(name, ready), daemon=True).start()
    ready.wait()
input()
"""


@pytest.fixture
def named() -> Iterator[tuple[int, list[int]]]:
    """A process's PID, and its threads in the order of their names."""
    command = [sys.executable, "-c", NAMED_THREADS, *NAMES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child.pid, [int(child.stdout.readline().rpartition(":")[2]) for _ in NAMES]
        child.kill()


def of(process: Process) -> VirtualMachine:
    return VirtualMachine("a", "a", 1, process, None, False, None)


def test_each_vcpus_thread_is_told_by_its_name_and_the_first_of_that_name_is_it(
    named: tuple[int, list[int]],
) -> None:
    pid, tids = named
    assert vcpu_threads.find(processes.of_pid(pid)) == {1: tids[1], 0: tids[2], 12: tids[3]}


def test_a_vm_that_has_ended_has_none() -> None:
    with pytest.raises(exceptions.ProcessVanished):
        vcpu_threads.find(Process(99999999, 1))
