# SPDX-License-Identifier: Apache-2.0
"""From libvirt's started event to the last task in its group, with 100 real VMs on the host; and the agent's memory.

It stands on the private libvirtd and the simulator, whose ``tasks`` file costs far more than the kernel's: what is
timed includes the simulator's work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import libvirt

from tests.benchmarks.support import Figure, percentile, spread
from tools.lab import kvm, vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.workspace import Workspace

STANDING = 100
STARTS = 40


class _StartedEvents:
    """When libvirt told us that a VM has started, by UUID; monotonic seconds."""

    def __init__(self, uri: str) -> None:
        self.told: dict[str, float] = {}
        self._stop = False
        libvirt.virEventRegisterDefaultImpl()
        self._timer = libvirt.virEventAddTimeout(50, lambda *_: None, None)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._connection = libvirt.open(uri)
        self._connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._note, None)

    def _run(self) -> None:
        while not self._stop:
            libvirt.virEventRunDefaultImpl()

    def _note(self, connection: object, domain: libvirt.virDomain, event: int, detail: int, opaque: object) -> None:
        if event == libvirt.VIR_DOMAIN_EVENT_STARTED:
            self.told[domain.UUIDString()] = time.monotonic()

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self._connection.close()


def run() -> Iterator[Figure]:
    """Start VMs beside 100 standing ones, and stop each again."""
    with Workspace() as workspace:
        daemon = PrivateLibvirt(workspace)
        daemon.start()
        simulator = Simulator(workspace, "broadwell")
        simulator.start()
        agent = Agent(workspace, resctrl=simulator.root, sysfs=simulator.sysfs, uri=daemon.uri, run_dir=daemon.run_dir)
        agent.start()
        events = _StartedEvents(daemon.uri)
        connection = daemon.connect()
        try:
            virt_type = kvm.virt_type()
            for number in range(STANDING):
                specs = {"hw:cache_ways": "1"} if number < 8 else {}
                vms.start(connection, vms.Vm(f"bench-{number}", vms.Flavor("standing", specs), virt_type=virt_type))
            _wait_until_settled(agent, STANDING)
            delays = [_one_start(connection, agent, simulator.root, events, virt_type, turn) for turn in range(STARTS)]
            resident = _resident(agent)
        finally:
            events.close()
            connection.close()
            agent.stop()
            simulator.stop()
            daemon.stop()
    p99 = percentile(delays, 0.99)
    yield Figure("started event to the last task in place, p99", p99, "ms", 50.0, spread(delays, "ms"))
    yield Figure(f"the agent's resident memory at {STANDING} VMs", resident, "MiB", 60.0, "VmRSS after all starts")


def _one_start(
    connection: libvirt.virConnect, agent: Agent, root: Path, events: _StartedEvents, virt_type: str, turn: int
) -> float:
    vm = vms.Vm(f"bench-start-{turn}", vms.Flavor("timed", {"hw:cache_ways": "2"}), vcpus=2, virt_type=virt_type)
    vms.start(connection, vm)
    tasks = root / f"vmqos.{vm.uuid}" / "tasks"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = agent.get(f"/v1/vms/{vm.uuid}") if tasks.exists() and tasks.read_text() else {}
        if found.get("tasks") and found["tasks"] == found["tasks_in_place"]:
            break
        time.sleep(0.001)
    else:
        raise TimeoutError(f"VM {vm.uuid} was not placed within 10 s")
    delay = (time.monotonic() - events.told[vm.uuid]) * 1e3
    vms.remove(connection, vm.uuid)
    _wait_until_settled(agent, STANDING)
    return delay


def _wait_until_settled(agent: Agent, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = agent.get("/v1/vms")["vms"]
        if len(found) == count and all(vm["state"] in ("kept", "none") for vm in found):
            return
        time.sleep(0.05)
    raise TimeoutError(f"the agent did not settle on {count} VMs")


def _resident(agent: Agent) -> float:
    for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmRSS")
