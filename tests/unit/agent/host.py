# SPDX-License-Identifier: Apache-2.0
"""A reconciler over the simulator's machine in this process, with processes as VMs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from tests.unit.agent.machine import PlayedLibvirt, SimulatedResctrl
from vmqos.agent.observe.running_vms import ObservedVm
from vmqos.agent.observe.told_flavors import Found, ToldFlavors
from vmqos.agent.reconcile import Reconciler
from vmqos.agent.steps import Change
from vmqos.allocation import Allocation, Policy
from vmqos.daemon.backoff import Backoff
from vmqos.hypervisor import processes, vm_tasks
from vmqos.hypervisor.model import NovaMetadata, VirtualMachine
from vmqos.resctrl import tasks
from vmqos.resctrl.topology import CacheTopology

NOT_GUARDED = Policy(kernel_exclusive=False)
OWN, SHARED = {"hw:cache_ways": "2"}, {"hw:cache_ways": "2", "hw:cache_policy": "shared"}
CLASS = "vmqos.shared-ways2"

THREADS = """
import sys, threading, time
threading.stack_size(65536)
def live(name, named):
    open('/proc/thread-self/comm', 'w').write(name)
    named.set()
    time.sleep(1000)
for vcpu in range(int(sys.argv[2])):
    named = threading.Event()
    threading.Thread(target=live, args=(f'CPU {vcpu}/KVM', named), daemon=True).start()
    named.wait()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    threading.Thread(target=live, args=(line.strip(), threading.Event()), daemon=True).start()
"""


class SilentNova(ToldFlavors):
    """A gateway that Nova does not answer."""

    def __init__(self) -> None:
        pass

    def look_up(self, vms: Iterable[VirtualMachine]) -> dict[str, Found]:
        return {vm.uuid: Found(None, "Nova does not answer") for vm in vms}


class Host:
    """A reconciler, the VMs, and a clock that stands still unless a test moves it."""

    def __init__(self, resctrl: SimulatedResctrl, topology: CacheTopology) -> None:
        self.resctrl = resctrl
        self.topology = topology
        self.libvirt = PlayedLibvirt()
        self.clock = 1000.0
        self.unseen: set[str] = set()
        self._told: dict[str, object] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self.before_lock: Callable[[], None] = lambda: None
        self.policy = NOT_GUARDED
        self.restart()

    def restart(self) -> None:
        """The agent is restarted: it knows nothing."""
        self._told = {}
        self.backoff = Backoff(1.0, 60.0, lambda: self.clock)
        self.reconciler = Reconciler(self.resctrl, self.backoff, SilentNova())

    def boot(self, specs: dict[str, str] | None, threads: int = 0, vcpus: int = 0) -> str:
        """Start a VM; it has its own process, with so many threads besides the first, and those of so many vCPUs."""
        uuid = self.libvirt.boot(specs or {})
        # Who came first is told by clock ticks.
        time.sleep(0.02)
        if threads:
            command = [sys.executable, "-c", THREADS, str(threads), str(vcpus), "-uuid", uuid]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._children.append(child)
            assert child.stdout is not None
            child.stdout.readline()
            self.libvirt.vms[uuid] = replace(self.libvirt.vms[uuid], process=processes.of_pid(child.pid))
        return uuid

    def add_thread(self, uuid: str, name: str) -> None:
        """Have the process of a VM that was booted with threads start one of this name."""
        pid = self.libvirt.vms[uuid].process.pid
        child = next(child for child in self._children if child.pid == pid)
        assert child.stdin is not None
        child.stdin.write(f"{name}\n".encode())
        child.stdin.flush()

    def forget_flavor(self, uuid: str) -> None:
        """The VM's description has no extra specs, as Nova wrote it before 2025.2: its API has to be asked."""
        known = self.libvirt.vms[uuid]
        self.libvirt.vms[uuid] = replace(known, metadata=NovaMetadata(known.name, "flavor", "", None))

    def look_again(self, uuid: str) -> None:
        """libvirt tells an event of this VM: the next pass looks at it anew."""
        self._told.pop(uuid, None)

    def run(self, *, everything: bool = False) -> bool:
        """One pass, under the lock."""
        vms = {
            uuid: ObservedVm(vm, frozenset(os.sched_getaffinity(0)))
            for uuid, vm in self.libvirt.vms.items()
            if uuid not in self.unseen
        }
        changed = frozenset(uuid for uuid in vms.keys() | self._told if self._told.get(uuid) is not vms.get(uuid))
        changed = frozenset(uuid for uuid in changed if self._told.get(uuid) != vms.get(uuid))
        self._told = dict(vms)
        change = Change(changed, frozenset(self.unseen), everything)
        self.reconciler.request(change, vms)
        self.before_lock()
        with self.resctrl.lock(exclusive=True):
            return self.reconciler.run(change, vms, self.topology, self.policy)

    def settle(self) -> None:
        """Passes, as long as the next one gets further."""
        for _ in range(500):
            if not self.run():
                return
        pytest.fail("the passes do not come to an end")

    def told(self, uuid: str) -> Allocation:
        return self.reconciler.snapshot.vms[uuid].allocation

    def unmonitored(self, uuid: str) -> str:
        return self.reconciler.snapshot.vms[uuid].unmonitored

    def threads(self, uuid: str) -> set[int]:
        return processes.tasks(self.libvirt.vms[uuid].process.pid)

    def vcpus(self, uuid: str) -> dict[int, int]:
        """The thread of each vCPU of a VM, by its number."""
        return vm_tasks.of_vcpus(self.libvirt.vms[uuid].process)

    def inside(self, uuid: str, group: str) -> int:
        """How many of a VM's threads are in a group."""
        return len(self.threads(uuid) & tasks.read_tasks(self.resctrl, group))

    def groups(self) -> set[str]:
        return {name for name in self.resctrl.directories() if name.startswith("vmqos.")}

    def graphs(self) -> set[str]:
        """The UUIDs of the VMs that have a monitoring group in the default group."""
        names = self.resctrl.directories("mon_groups")
        return {name.removeprefix("vmqos.") for name in names if name.startswith("vmqos.")}

    def mask(self, group: str) -> str:
        text = self.resctrl.read(group, "schemata")
        return next(line for line in text.splitlines() if "L3:" in line).split("0=")[1].split(";")[0].lstrip("0")

    def end(self) -> None:
        self.libvirt.end()
        for child in self._children:
            child.kill()
            child.wait()


MakeHost = Callable[..., Host]
