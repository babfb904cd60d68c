# SPDX-License-Identifier: Apache-2.0
"""A compute node inside a guest: the kernel's resctrl, libvirtd with VMs that work, and the agent, who alone acts."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kernel.cachemodel import switch
from tests.worth import loads, rom
from tests.worth.loads import Load
from tools.lab import mounts, processes, vms
from tools.lab.agent import Agent, Options
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.program import Launch, Preloaded
from tools.lab.vms import Flavor, Linux, RunningVm
from tools.lab.workspace import Workspace

RESCTRL = Path("/sys/fs/resctrl")
PATIENCE = 240.0
"""Seconds for anything to happen that takes a second on a machine that is not emulated."""
POLL = 0.1

CALM: Options = {
    "agent": {"audit_interval": 2.0, "retry_delay_min": 0.2},
    "telemetry": {"interval": 0},
    "http": {"port": 0},
}
"""The agent's options: it acts at once when something happens, and looks seldom otherwise, for looking fills the cache.
The counters it reads when somebody asks."""

PROGRAMS = ("vmqos.agent.main", "vmqos.cli.main", "vmqos.cli.top.command", "vmqos.cli.top.source")
"""What is imported once, and not by each process anew."""

STILL = {
    Path("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"): 0xFFFFFFFF,
    Path("/proc/sys/vm/compaction_proactiveness"): 0,
}
"""What keeps the kernel from tidying memory in its spare time (mm/khugepaged.c, mm/compaction.c). A huge page that
khugepaged puts together is copied through half of a cache as small as the modelled one, whoever's it is: three of them
took a VM's lines, beside a capped neighbour, for an eighth of all its accesses."""

NOTHING: Mapping[str, str] = {}
"""Extra specs of a flavor that asks for nothing."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A VM that works.

    :ivar vm: as libvirt and /proc show it.
    :ivar load: what it does.
    :ivar console: where it says how far it got.
    """

    vm: RunningVm
    load: Load
    console: Path

    @property
    def uuid(self) -> str:
        """The VM's."""
        return self.vm.uuid

    def progress(self) -> int:
        """Accesses that it has reported so far."""
        return loads.progress(self.console, self.load) or 0

    def pause(self) -> None:
        """Stop its vCPUs."""
        self.vm.domain.suspend()

    def resume(self) -> None:
        """Let its vCPUs run."""
        self.vm.domain.resume()


@dataclass
class Node:
    """See :func:`node`.

    :ivar launch: starts the project's programs.
    :ivar agent: running, unless an experiment stopped it.
    :ivar workers: the VMs there are, by name.
    """

    workspace: Workspace
    libvirtd: PrivateLibvirt
    launch: Launch
    agent: Agent
    rom: Path
    workers: dict[str, Worker] = field(default_factory=dict)

    def start(
        self,
        name: str,
        load: Load,
        extra_specs: Mapping[str, str] = NOTHING,
        cpus: str = "",
        linux: Linux | None = None,
    ) -> Worker:
        """Start a VM, and wait until it works and the agent has done what its flavor asks for.

        :param extra_specs: the flavor's.
        :param cpus: the CPUs that it may run on; all where empty.
        :param linux: what makes the load, and says how far it got, if that is not the ROM.
        """
        console = self.workspace.path / f"{name}.console"
        vm = vms.Vm(
            name=name,
            flavor=Flavor(name, extra_specs),
            cpuset=cpus,
            memory=load.memory,
            virt_type="kvm",
            rom=None if linux else self.rom,
            linux=linux,
            fw_cfg={} if linux else {loads.FW_CFG: load.text},
            console=console,
        )
        worker = self.workers[name] = Worker(vms.run(self.libvirtd, vm), load, console)
        self.wait_for(lambda: loads.progress(console, load) is not None, f"VM {name} working")
        self.wait_until_kept(worker, extra_specs)
        return worker

    def start_all(self, loads_: Mapping[str, Load], cpus: Mapping[str, str]) -> list[Worker]:
        """Start VMs that ask for nothing, all at once.

        :param loads_: what each does, by name.
        :param cpus: the CPUs of each.
        """
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda name: self.start(name, loads_[name], cpus=cpus[name]), loads_))

    def promise(self, worker: Worker, extra_specs: Mapping[str, str]) -> None:
        """Give the VM another flavor, and wait until the agent has done what it asks for."""
        self.promise_all({worker: extra_specs})

    def promise_all(self, wanted: Mapping[Worker, Mapping[str, str]]) -> None:
        """Give each of these VMs another flavor, all at once."""
        for worker, extra_specs in wanted.items():
            worker.vm.change_flavor(Flavor(f"{worker.vm.name}-{len(extra_specs)}", extra_specs))
        for worker, extra_specs in wanted.items():
            self.wait_until_kept(worker, extra_specs)

    def wait_until_kept(self, worker: Worker, extra_specs: Mapping[str, str]) -> None:
        """Wait until the agent says that the promise is kept, for all tasks.

        :raises TimeoutError: with what the agent says.
        """
        state = "kept" if extra_specs else "none"
        ways = int(extra_specs["hw:cache_ways"]) if "hw:cache_ways" in extra_specs else None
        policy = extra_specs.get("hw:cache_policy", "exclusive") if ways else None
        told: dict[str, Any] = {}

        def kept() -> bool:
            told.update(self.agent.get(f"/v1/vms/{worker.uuid}"))
            return bool(
                told["state"] == state
                and told["ways_requested"] == ways
                and (policy is None or told["policy"] == policy)
                and told["tasks"] == told["tasks_in_place"] > 0
                # Its monitoring group may be made, and filled, a pass or two later. What it does is counted there.
                and not told["unmonitored_reason"]
            )

        try:
            self.wait_for(kept, f"VM {worker.vm.name} being {state}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the agent says: {told}") from error

    def group(self, worker: Worker) -> Path:
        """The VM's monitored group: its control group, or its monitoring group in another one."""
        name = f"vmqos.{worker.uuid}"
        places = (RESCTRL / name, *RESCTRL.glob(f"mon_groups/{name}"), *RESCTRL.glob(f"*/mon_groups/{name}"))
        return next(path for path in places if path.is_dir())

    def rmid(self, worker: Worker) -> int:
        """By which the hardware counts the VM."""
        return switch.rmid_of(self.group(worker))

    def remove(self, worker: Worker) -> None:
        """End the VM, and wait until its group is gone."""
        del self.workers[worker.vm.name]
        vms.remove(self.libvirtd.connection(), worker.uuid)
        if self.agent.pid is not None:
            self.wait_for(
                lambda: not any(worker.uuid in str(path) for path in RESCTRL.glob("**/vmqos.*")), "its group's end"
            )

    def remove_all(self) -> None:
        """End all VMs."""
        for worker in list(self.workers.values()):
            self.remove(worker)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something is true; that the agent does not answer is not."""

        def quietly() -> bool:
            try:
                return bool(condition())
            except (OSError, RuntimeError, KeyError):
                return False

        processes.wait_until(quietly, what, PATIENCE, POLL)


@contextlib.contextmanager
def _still() -> Iterator[None]:
    before = {path: path.read_text() for path in STILL}
    for path, value in STILL.items():
        path.write_text(str(value))
    try:
        yield
    finally:
        for path, text in before.items():
            path.write_text(text)


@contextlib.contextmanager
def node() -> Iterator[Node]:
    """Start everything but VMs; at the end nothing is left.

    resctrl is mounted with the option ``debug``, which tells RMIDs.
    """
    subprocess.run(["modprobe", "kvm-amd"], check=True)
    # libvirt's mounts follow ours, as on a host with systemd.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    subprocess.run(["mount", "-t", "resctrl", "-o", "debug", "resctrl", str(RESCTRL)], check=True)
    try:
        with _still(), Workspace() as workspace:
            launch: Launch = Preloaded(PROGRAMS)
            libvirtd = PrivateLibvirt(workspace)
            agent = Agent(
                workspace,
                resctrl=RESCTRL,
                sysfs=None,
                uri=libvirtd.uri,
                run_dir=libvirtd.run_dir,
                options=CALM,
                launch=launch,
            )
            # The agent waits for libvirt, if it has to.
            with ThreadPoolExecutor(1) as pool:
                built = pool.submit(rom.build, workspace.path / "load.rom")
                agent.start(wait=False)
                libvirtd.start()
            made = Node(workspace, libvirtd, launch, agent, built.result())
            made.wait_for(lambda: agent.get("/v1/health")["passes"], "the agent's first pass")
            try:
                yield made
            finally:
                made.remove_all()
                agent.end()
                libvirtd.stop()
    finally:
        mounts.unmount(RESCTRL, patience=PATIENCE)


__all__ = ["NOTHING", "Node", "Worker", "node"]
