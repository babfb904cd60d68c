# SPDX-License-Identifier: Apache-2.0
"""A host to measure the agent on: a private libvirtd with VMs that stand by, on the simulator.

The agent has the priority that its unit gives it. What the simulator does is the kernel's part of the agent's calls,
so it has the same one. The gateway has as many arenas of malloc as its unit gives it.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.lab import vms
from tools.lab.agent import Agent, Options
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.program import Launch, Program, launch
from tools.lab.simulator import Simulator
from tools.lab.workspace import CHECKOUT, Workspace

UNIT = CHECKOUT / "etc/systemd/vmqos-agent.service"
GATEWAYS_UNIT = CHECKOUT / "etc/systemd/vmqos-gateway.service"
ARENAS = "MALLOC_ARENA_MAX"
"""A variable of the environment: mallopt(3)."""
EXCLUSIVE = 8
"""How many of the VMs that stand by have a way for themselves; the others ask for nothing."""


@dataclass(frozen=True, slots=True)
class Host:
    """What runs there.

    :ivar agent: not started yet.
    """

    daemon: PrivateLibvirt
    simulator: Simulator
    agent: Agent


@contextlib.contextmanager
def host(
    options: Options | None = None,
    profile: str = "broadwell",
    module: str = "vmqos.simulator",
    launch: Launch = launch,
) -> Iterator[Host]:
    """Bring up a host, and take it down again with all its VMs.

    :param options: the agent's.
    :param profile: the simulated machine.
    :param module: the simulator that is run.
    :param launch: how the agent and its gateway are started.
    """
    with Workspace() as workspace, contextlib.ExitStack() as leaving:
        daemon = PrivateLibvirt(workspace)
        daemon.start()
        leaving.callback(daemon.stop)
        simulator = Simulator(workspace, profile, module=module)
        simulator.start()
        leaving.callback(simulator.stop)
        for task in os.listdir(f"/proc/{simulator.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), niceness())
        agent = Agent(
            workspace,
            resctrl=simulator.root,
            sysfs=simulator.sysfs,
            uri=daemon.uri,
            run_dir=daemon.run_dir,
            options=options,
            launch=functools.partial(_launch, launch),
        )
        leaving.callback(agent.end)
        yield Host(daemon, simulator, agent)


def niceness() -> int:
    """``Nice=`` of the agent's unit."""
    unit = configparser.ConfigParser(strict=False, interpolation=None, delimiters="=")
    unit.read(UNIT)
    return unit.getint("Service", "Nice")


@contextlib.contextmanager
def _arenas() -> Iterator[None]:
    """What is started meanwhile has as many arenas as the gateway's unit says."""
    prefix = f"Environment={ARENAS}="
    (most,) = (line for line in GATEWAYS_UNIT.read_text().splitlines() if line.startswith(prefix))
    os.environ[ARENAS] = most.removeprefix(prefix)
    try:
        yield
    finally:
        del os.environ[ARENAS]


def _launch(start: Launch, module: str, arguments: Sequence[str], log: Path) -> Program:
    """Start a program; the agent has its priority before it has more threads than one."""
    with _arenas() if module == "vmqos.gateway.main" else contextlib.nullcontext():
        program = start(module, arguments, log)
    if module == "vmqos.agent.main":
        os.setpriority(os.PRIO_PROCESS, program.pid, niceness())
    return program


def standing(number: int, vcpus: int = 1) -> vms.Vm:
    """One of the VMs that stand by."""
    specs = {"hw:cache_ways": "1"} if number < EXCLUSIVE else {}
    return vms.Vm(f"bench-{number}", vms.Flavor("standing", specs), vcpus=vcpus)
