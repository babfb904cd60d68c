# SPDX-License-Identifier: Apache-2.0
"""Which of QEMU's threads runs which vCPU."""

from __future__ import annotations

import re

from vmqos.hypervisor import processes
from vmqos.hypervisor.model import Process

_NAME = re.compile(r"CPU ([0-9]+)/[A-Z]+")
"""QEMU's names (``accel/kvm/kvm-accel-ops.c``, ``accel/tcg/tcg-accel-ops-mttcg.c``), which it gives its threads because
libvirt asks it to (``debug-threads=on``). One thread for all vCPUs, of software emulation, is called otherwise."""


def find(process: Process) -> dict[int, int]:
    """The id of the thread of each vCPU that a VM has now, by the vCPU's number.

    A thread has its creator's name until it is given one of its own, so of several the one that was born first is it.
    The VM's cgroup is no better witness: its ``vcpu0`` has the threads that were born to the vCPU, too.

    :param process: the VM's QEMU process.
    :raises vmqos.hypervisor.exceptions.ProcessVanished: if it has ended.
    """
    first: dict[int, tuple[int, int]] = {}
    with processes.opened(process) as descriptor:
        for tid in processes.tasks(process.pid, descriptor):
            thread = processes.thread_of(descriptor, tid)
            named = _NAME.fullmatch(thread.comm) if thread is not None else None
            if thread is not None and named is not None:
                number, age = int(named[1]), (thread.start_time, tid)
                first[number] = min(first.get(number, age), age)
    return {number: tid for number, (_, tid) in first.items()}
