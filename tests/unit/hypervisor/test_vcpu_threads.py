# SPDX-License-Identifier: Apache-2.0
"""Which threads are vCPUs'; a process of the test's own gives its threads the names that QEMU gives them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmqos.hypervisor import exceptions, processes, vm_tasks
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
    assert vm_tasks.of_vcpus(processes.of_pid(pid)) == {1: tids[1], 0: tids[2], 12: tids[3]}


def test_a_vm_that_has_ended_has_none() -> None:
    with pytest.raises(exceptions.ProcessVanished):
        vm_tasks.of_vcpus(Process(99999999, 1))


def test_threads_that_are_named_as_vcpus_tell_where_they_may_run() -> None:
    names = ("CPU 0/KVM", "CPU 11/TCG", "worker", "IO mon_iothread")
    done = threading.Event()

    def run(name: str) -> None:
        Path("/proc/thread-self/comm").write_text(name)
        ready.wait()
        done.wait()

    ready = threading.Barrier(len(names) + 1)
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    try:
        ready.wait(10)
        mine = frozenset(os.sched_getaffinity(0))
        assert vm_tasks.vcpu_affinities(os.getpid()) == [mine, mine]
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_process_that_is_gone_has_no_vcpus() -> None:
    assert vm_tasks.vcpu_affinities(2**22 + 1) == []
