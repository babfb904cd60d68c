# SPDX-License-Identifier: Apache-2.0
"""An agent with its own loop, over the simulator's machine in this process, with processes as VMs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.agent.machine import PlayedLibvirt, SimulatedResctrl
from tests.unit.eventually import eventually
from tools.lab.stalls import Stalls
from vmqos.agent import loop
from vmqos.agent.loop import Agent
from vmqos.agent.observe import command_lines, running_vms
from vmqos.allocation import PromiseState
from vmqos.conf import loader
from vmqos.resctrl import exceptions, mount

LOCK_TIMEOUT = 0.1
LONG = 30.0
SHIPPED = {name: getattr(running_vms, name) for name in ("LIST_PATIENCE", "LOOK_DEADLINE", "ROUND_BUDGET")}
TWO = {"hw:cache_ways": "2"}
THREE = {"hw:cache_ways": "3"}
FOUR = {"hw:cache_ways": "4"}
SOON = 3.0
"""Seconds within which what takes less than a second has happened on a machine that is busy, too."""


def time_until(condition: Callable[[], bool], stalls: Stalls) -> float:
    """Wait until the condition is true; the seconds it took, while this machine had a CPU for it."""
    began = time.monotonic()
    eventually(condition)
    return stalls.took(began)


class Host:
    """An agent, and what it runs on."""

    def __init__(self, agent: Agent, resctrl: SimulatedResctrl, libvirt: PlayedLibvirt, conf: Path) -> None:
        self.agent = agent
        self.resctrl = resctrl
        self.libvirt = libvirt
        self.conf = conf

    def ways(self, uuid: str) -> int:
        """How many ways of the first cache the VM's own group has; 0 where it has no group."""
        try:
            text = self.resctrl.read(f"vmqos.{uuid}", "schemata")
        except exceptions.ResctrlError:
            return 0
        mask = next(line for line in text.splitlines() if "L3:" in line).split("0=")[1].split(";")[0]
        return int(mask, 16).bit_count()

    def settle(self) -> None:
        """Have passes run until there is nothing left to do: the next one does only what it is told."""
        for _ in range(3):
            self.agent.run_passes()

    def serve(self, specs: dict[str, str]) -> str:
        """Start a VM of which libvirt tells, and have passes run."""
        uuid = self.libvirt.boot(specs)
        self.agent._on_change(uuid)
        self.settle()
        return uuid

    @contextlib.contextmanager
    def started_anew(self) -> Iterator[None]:
        """The agent was killed, and another one, which knows nothing yet, is in its place."""
        killed, self.agent = self.agent, Agent(loader.load(["--config-file", str(self.conf)]))
        try:
            yield
        finally:
            self.agent._running_vms.close()
            self.agent = killed

    def state(self, uuid: str) -> PromiseState | None:
        record = self.agent.snapshot.vms.get(uuid)
        return record.allocation.state if record is not None else None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Another process holds the lock on resctrl."""
        descriptor = os.open(self.resctrl.root, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def faulty(self) -> Iterator[None]:
        """The pass meets a fault of its own when it reads resctrl."""

        def fail(path: str) -> None:
            raise RuntimeError(f"a fault of ours at {path}")

        self.resctrl.before, before = fail, self.resctrl.before
        try:
            yield
        finally:
            self.resctrl.before = before

    @contextlib.contextmanager
    def unmounted(self) -> Iterator[None]:
        """resctrl is not mounted."""

        def fail(path: str) -> None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

        def find(path: str, **_: object) -> mount.Mount:
            raise exceptions.NotMounted(path=path, mend="mount it")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.resctrl, "before", fail)
            patch.setattr(mount, "find", find)
            yield

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The agent runs by itself."""
        thread = threading.Thread(target=self.agent.run)
        thread.start()
        try:
            yield
        finally:
            self.agent.stop()
            thread.join(LONG)
            assert not thread.is_alive()


Trouble = Callable[[Host], contextlib.AbstractContextManager[None]]
"""Makes passes fail."""


@contextlib.contextmanager
def agent_in(folder: Path, monkeypatch: pytest.MonkeyPatch, further_options: str = "") -> Iterator[Host]:
    """An agent that makes no audit during a test: what is served at once is served for another reason.

    It bears a machine that has no CPU for a while.

    :param further_options: what else its configuration says.
    """
    for name in SHIPPED:
        monkeypatch.setattr(running_vms, name, LONG)
    monkeypatch.setattr(command_lines, "PATIENCE", LONG)
    root, sysfs, conf = folder / "resctrl", folder / "cpu", folder / "vmqos.conf"
    root.mkdir()
    resctrl, libvirt = SimulatedResctrl(root, sysfs), PlayedLibvirt()
    monkeypatch.setattr(loop, "Filesystem", lambda path: resctrl)
    monkeypatch.setattr(loop, "Connection", lambda *_, **__: libvirt)
    # The folder is no mount point.
    mounted = mount.Mount(str(root), frozenset(), read_only=False, simulated=True)
    monkeypatch.setattr(mount, "find", lambda path, **_: mounted)
    conf.write_text(
        f"[resctrl]\npath = {root}\nsysfs_cpu_path = {sysfs}\nlock_timeout = {LOCK_TIMEOUT}\n"
        f"[agent]\nstate_path = {folder}\naudit_interval = 60\nfull_audit_interval = 600\n{further_options}"
    )
    agent = Agent(loader.load(["--config-file", str(conf)]), lambda: loader.load(["--config-file", str(conf)]))
    yield Host(agent, resctrl, libvirt, conf)
    libvirt.end()
    agent._running_vms.close()
