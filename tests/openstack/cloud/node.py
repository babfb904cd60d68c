# SPDX-License-Identifier: Apache-2.0
"""A compute node of the cloud: libvirt, a simulated resctrl, and the agent."""

from __future__ import annotations

from collections.abc import Mapping

import libvirt

from tools.lab.agent import Agent, Options
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.vms import RunningVm
from tools.lab.workspace import Workspace

OPTIONS: Options = {
    "agent": {"audit_interval": 0.5, "retry_delay_min": 0.1, "retry_delay_max": 2.0},
    "http": {"port": 0},
}
"""A test can't wait for the minute that an operator can."""


class Node:
    """One host.

    :param name: of nova-compute's service.
    :param workspace: of its own, for that is what a private libvirtd sees.
    :param hostname: as libvirt is to call it; as the host is called, if empty.
    :param machine: the simulator's profile and mount options.
    :param compute: nova-compute's section of that name.
    :param options: further options of the agent.
    :param simulator: the module that plays the machine.
    :ivar agent: not there before :meth:`start_agent`.
    """

    agent: Agent

    def __init__(
        self,
        name: str,
        workspace: Workspace,
        hostname: str = "",
        machine: tuple[str, str] = ("cascade-lake", ""),
        compute: Mapping[str, str] | None = None,
        options: Options | None = None,
        simulator: str = "vmqos.simulator",
    ) -> None:
        self.name = name
        self.workspace = workspace
        self.compute = dict(compute or {})
        self.options = dict(options or {})
        self.simulator = Simulator(workspace, *machine, module=simulator)
        self.libvirt = PrivateLibvirt(workspace, hostname)

    def start(self) -> None:
        """Start resctrl and libvirtd."""
        self.simulator.start()
        self.libvirt.start()

    def start_agent(self, credentials: Mapping[str, Mapping[str, object]]) -> None:
        """Start the agent.

        :param credentials: by the section of its configuration, which is the service that they are for.
        """
        self.agent = Agent(
            self.workspace,
            resctrl=self.simulator.root,
            sysfs=self.simulator.sysfs,
            uri=self.libvirt.uri,
            run_dir=self.libvirt.run_dir,
            options={**OPTIONS, **self.options, **credentials},
        )
        self.agent.start()

    @property
    def hostname(self) -> str:
        """The compute node's hypervisor hostname, which is what libvirt says."""
        return str(self.libvirt.connection().getHostname())

    def domains(self) -> dict[str, libvirt.virDomain]:
        """What libvirt knows, whether it runs or not, by UUID."""
        return {domain.UUIDString(): domain for domain in self.libvirt.connection().listAllDomains()}

    def tasks(self, uuid: str) -> dict[int, str]:
        """The tasks of a server's QEMU process with their names; empty where it does not run here."""
        domain = self.domains().get(uuid)
        return RunningVm(uuid, domain.name(), self.libvirt).tasks() if domain else {}

    def stop(self) -> None:
        """End everything; the instances, too."""
        self.agent.end()
        for domain in self.domains().values():
            if domain.isActive():
                domain.destroy()
        self.libvirt.stop()
        self.simulator.stop()
