# SPDX-License-Identifier: Apache-2.0
"""From libvirt's started event to the last task in its group, with 100 real VMs on the host.

It stands on the private libvirtd and the simulator, whose ``tasks`` file costs far more than the kernel's: what is
timed includes the simulator's work. The VMs run under software emulation: nested KVM takes seconds to start the tenth.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import libvirt

from tests.benchmarks.figures import Figure, percentile, spread
from tests.benchmarks.host import Host, host, standing
from tools.lab import vms
from tools.lab.agent import Agent

STANDING = 100
STARTS = 40
QUIET = 0.5


class _StartedEvents:
    """When libvirt told us that a VM has started, by UUID; monotonic seconds."""

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
            self.told[domain.UUIDString()] = time.monotonic()

    def close(self) -> None:
        """Stop listening."""
        self._stop = True
        self._thread.join()
        self._connection.close()


def run() -> Iterator[Figure]:
    """Start VMs beside 100 standing ones, and stop each again."""
    with contextlib.ExitStack() as leaving:
        ours = leaving.enter_context(host())
        ours.agent.start()
        events = _StartedEvents(ours.daemon.uri)
        leaving.callback(events.close)
        connection = leaving.enter_context(contextlib.closing(ours.daemon.connect()))
        for number in range(STANDING):
            vms.start(connection, standing(number))
        _wait_until_settled(ours.agent, STANDING)
        delays = [_one_start(ours, events, turn) for turn in range(STARTS)]
    p99 = percentile(delays, 0.99)
    yield Figure("started event to the last task in place, p99", p99, "ms", 50.0, spread(delays, "ms"))


def _one_start(ours: Host, events: _StartedEvents, turn: int) -> float:
    """Milliseconds from the event to the last write to the VM's ``tasks``, by the simulator's log of changes."""
    simulator = ours.simulator
    connection = ours.daemon.connection()
    vm = vms.Vm(f"bench-start-{turn}", vms.Flavor("timed", {"hw:cache_ways": "2"}), vcpus=2)
    with simulator.log.open() as log:
        log.seek(0, os.SEEK_END)
        starting = threading.Thread(target=vms.start, args=(connection, vm))
        starting.start()
        last = _last_write(log, f"vmqos.{vm.uuid}/tasks")
        starting.join()
    there = set(map(int, (simulator.root / f"vmqos.{vm.uuid}" / "tasks").read_text().split()))
    wanted = set(vms.RunningVm(vm.uuid, vm.name, ours.daemon).tasks())
    if not wanted or wanted - there:
        raise AssertionError(f"{len(wanted - there)} of {len(wanted)} tasks of VM {vm.uuid} were not placed")
    delay = max(0.0, last - events.told[vm.uuid]) * 1e3
    vms.remove(connection, vm.uuid)
    _wait_until_settled(ours.agent, STANDING)
    return delay


def _last_write(log: TextIO, path: str) -> float:
    """The monotonic time of the last change of a file, once there was one and half a second brought no other."""
    last = 0.0
    deadline = time.monotonic() + 20
    while not last or time.monotonic() < last + QUIET:
        now = time.monotonic()
        if path in log.read():
            last = now
        if now > deadline:
            raise TimeoutError(f"nobody wrote to {path} within 20 s")
        time.sleep(0.0005)
    return last


def _wait_until_settled(agent: Agent, count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = agent.get("/v1/vms")["vms"]
        if len(found) == count and all(vm["state"] in ("kept", "none") for vm in found):
            return
        time.sleep(0.05)
    raise TimeoutError(f"the agent did not settle on {count} VMs")
