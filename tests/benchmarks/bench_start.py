# SPDX-License-Identifier: Apache-2.0
"""The CPU time that a VM's vCPUs use outside of the VM's group while it starts, with 100 real VMs on the host.

It stands on the private libvirtd and the simulator, whose ``tasks`` file costs far more than the kernel's: what is
timed includes the simulator's work. What was moved is taken from the simulator's log, and so is not the agent's own
word: a thread that nobody moved was born where it belongs. The VMs that stand by run under software emulation, and so
do those that are started unless KVM is asked for: nested KVM takes seconds to start the tenth.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libvirt

from tests.benchmarks.figures import Figure, percentile, spread
from tests.benchmarks.host import Host, host, standing
from tools.lab import kvm, vms
from tools.lab.agent import Agent

STANDING = 100
QUIET = 1.0
"""Seconds without a change after which nothing more is expected of a start."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way in which VMs are started.

    :ivar starts: how many VMs, all in all.
    :ivar at_once: how many of them are started at the same moment.
    :ivar defined: seconds between libvirt's knowing the VM and its start.
    :ivar is_busy: whether other programs use every CPU.
    :ivar with_kvm: whether the VMs run under KVM.
    """

    name: str
    starts: int = 40
    at_once: int = 1
    defined: float = 0.0
    is_busy: bool = False
    with_kvm: bool = False


SCENARIOS = (
    Scenario("one at a time, defined right before", starts=80),
    Scenario("one at a time, defined half a second before", defined=0.5),
    Scenario("one at a time, defined 3 s before", starts=20, defined=3.0),
    Scenario("one at a time, every CPU busy", is_busy=True),
    Scenario("20 at once", at_once=20),
    Scenario("20 at once, every CPU busy", starts=20, at_once=20, is_busy=True),
    Scenario("one at a time, KVM", starts=20, with_kvm=True),
)


@dataclass(frozen=True, slots=True)
class Started:
    """What became of one start.

    :ivar moved: the vCPU threads that had to be moved: they were born elsewhere.
    :ivar outside: milliseconds of CPU that the VM's tasks used outside of its group.
    :ivar delay: milliseconds from libvirt's started event to the last task's move; 0 where that came first.
    :ivar took: milliseconds that libvirt took to start the VM.
    """

    moved: int
    outside: float
    delay: float
    took: float


class _StartedEvents:
    """When libvirt told us that a VM has started, by UUID; seconds since 1970, as the simulator's log has them."""

    def __init__(self, uri: str) -> None:
        self.told: dict[str, float] = {}
        self._stop = False
        libvirt.virEventRegisterDefaultImpl()
        # The loop returns at least that often, and sees that it shall stop.
        libvirt.virEventAddTimeout(50, lambda *_: None, None)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._connection = libvirt.open(uri)
        self._connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._note, None)

    def _run(self) -> None:
        while not self._stop:
            libvirt.virEventRunDefaultImpl()

    def _note(self, connection: object, domain: libvirt.virDomain, event: int, detail: int, opaque: object) -> None:
        if event == libvirt.VIR_DOMAIN_EVENT_STARTED:
            self.told[domain.UUIDString()] = time.time()

    def close(self) -> None:
        """Stop listening."""
        self._stop = True
        self._thread.join()
        self._connection.close()


def run() -> Iterator[Figure]:
    """Start VMs beside 100 standing ones in each of the ways, and stop each again."""
    with contextlib.ExitStack() as leaving:
        ours = leaving.enter_context(host())
        ours.agent.start()
        events = _StartedEvents(ours.daemon.uri)
        leaving.callback(events.close)
        connection = leaving.enter_context(contextlib.closing(ours.daemon.connect()))
        for number in range(STANDING):
            vms.start(connection, standing(number))
        wait_until_settled(ours.agent, STANDING)
        for scenario in SCENARIOS:
            if scenario.with_kvm and not kvm.usable():
                raise RuntimeError("this machine has no KVM that works")
            with load(scenario.is_busy):
                found = [
                    started
                    for turn in range(scenario.starts // scenario.at_once)
                    for started in _starts(ours, events, scenario, turn)
                ]
            yield from _figures(scenario, found)


def _figures(scenario: Scenario, found: Sequence[Started]) -> Iterator[Figure]:
    clean = sum(not started.moved for started in found)
    outside, delays = [started.outside for started in found], [started.delay for started in found]
    took = [started.took for started in found]
    name = f"{scenario.name}: "
    yield Figure(f"{name}starts whose vCPU threads were all born in the group", clean / len(found) * 100, "%")
    yield Figure(f"{name}CPU time outside, p99", percentile(outside, 0.99), "ms", 10.0, spread(outside, "ms"))
    yield Figure(f"{name}event to the last move, p99", percentile(delays, 0.99), "ms", 50.0, spread(delays, "ms"))
    yield Figure(f"{name}libvirt's start, p99", percentile(took, 0.99), "ms", None, spread(took, "ms"))


def _starts(ours: Host, events: _StartedEvents, scenario: Scenario, turn: int) -> list[Started]:
    """Start some VMs at the same moment, and stop them again once they have settled."""
    connection = ours.daemon.connection()
    virt_type = "kvm" if scenario.with_kvm else "qemu"
    flavor = vms.Flavor(
        "timed", {"hw:cache_ways": "2", "hw:cache_policy": "shared"} if scenario.at_once > 1 else {"hw:cache_ways": "2"}
    )
    wanted = [
        vms.Vm(f"bench-{turn}-{number}", flavor, vcpus=2, virt_type=virt_type) for number in range(scenario.at_once)
    ]
    domains = {vm.uuid: vms.define(connection, vm) for vm in wanted}
    time.sleep(scenario.defined)
    mark = os.stat(ours.simulator.log).st_size
    took = dict[str, float]()

    def start(uuid: str) -> None:
        began = time.monotonic()
        domains[uuid].create()
        took[uuid] = (time.monotonic() - began) * 1e3

    threads = [threading.Thread(target=start, args=(vm.uuid,)) for vm in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until_settled(ours.agent, STANDING + len(wanted))
    wait_until_quiet(ours)
    moves = _moves(ours, mark)
    told = {vm["uuid"]: vm for vm in ours.agent.get("/v1/vms")["vms"]}
    found = []
    for vm in wanted:
        own = vms.RunningVm(vm.uuid, vm.name, ours.daemon).tasks()
        missing = told[vm.uuid]["tasks"] - told[vm.uuid]["tasks_in_place"]
        if not own or missing:
            raise AssertionError(f"{missing} tasks of VM {vm.uuid} were not placed")
        vcpus = {tid for tid, name in own.items() if name.startswith(("CPU ", "ALL CPUs"))}
        last = max((moves[tid] for tid in own if tid in moves), default=0.0)
        outside = (told[vm.uuid]["outside_at_start"] + told[vm.uuid]["outside_later"]) * 1e3
        delay = max(0.0, last - events.told[vm.uuid]) * 1e3
        found.append(Started(len(vcpus & moves.keys()), outside, delay, took[vm.uuid]))
    for vm in wanted:
        vms.remove(connection, vm.uuid)
    wait_until_settled(ours.agent, STANDING)
    return found


def _moves(ours: Host, mark: int) -> dict[int, float]:
    """When each thread was last moved, by its ID, since the log had so many bytes."""
    found = dict[int, float]()
    with ours.simulator.log.open() as log:
        log.seek(mark)
        for line in log:
            change = json.loads(line)
            if change["op"] == "write" and change["path"].endswith("tasks"):
                found |= {int(tid): change["time"] for tid in change["data"].replace(",", " ").split()}
    return found


@contextlib.contextmanager
def load(is_busy: bool) -> Iterator[None]:
    """Keep every CPU busy, if that is asked for."""
    command = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)] if is_busy else []
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def wait_until_quiet(ours: Host) -> None:
    """Wait until the agent has not changed resctrl for a second."""
    last, since = -1, time.monotonic()
    while time.monotonic() < since + QUIET:
        size = os.stat(ours.simulator.log).st_size
        if size != last:
            last, since = size, time.monotonic()
        time.sleep(0.02)


def wait_until_settled(agent: Agent, count: int) -> None:
    """Wait until the agent knows so many VMs, and has all of their promises kept.

    :raises TimeoutError: after a minute.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = agent.get("/v1/vms")["vms"]
        if len(found) == count and all(vm["state"] in ("kept", "none") for vm in found):
            return
        time.sleep(0.05)
    raise TimeoutError(f"the agent did not settle on {count} VMs")
