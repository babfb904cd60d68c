# SPDX-License-Identifier: Apache-2.0
"""A compute node: libvirtd, a simulated resctrl, the agent, and instances of every kind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.openstack.servers.process import free_port
from tools.lab import processes, vms
from tools.lab.agent import Agent
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.simulator import Simulator
from tools.lab.vms import Flavor, Vm
from tools.lab.workspace import Workspace

WAYS = 2

GOLD = Vm("instance-00000001", Flavor("gold", {"hw:cache_ways": str(WAYS)}), display_name="db-1")
CAPPED = Vm(
    "instance-00000002",
    Flavor("capped", {"hw:cache_ways": str(WAYS), "hw:cache_policy": "shared"}),
    display_name="batch-1",
)
PLAIN = Vm("instance-00000003", Flavor("plain"), display_name="web-1")
GREEDY = Vm("instance-00000005", Flavor("greedy", {"hw:cache_ways": "11"}), display_name="all-1")
"""It asks for every way there is: pending."""
STOPPED = Vm("instance-00000004", Flavor("gold", {"hw:cache_ways": str(WAYS)}), display_name="db-2")

RUNNING = (GOLD, CAPPED, PLAIN, GREEDY)


class Node:
    """A host of our own inside the host.

    :ivar metrics: host and port of the agent's metrics.
    """

    def __init__(self, workspace: Workspace) -> None:
        port = free_port()
        self.metrics = f"127.0.0.1:{port}"
        self.libvirt = PrivateLibvirt(workspace)
        self.simulator = Simulator(workspace)
        self.agent = Agent(
            workspace,
            resctrl=self.simulator.root,
            sysfs=self.simulator.sysfs,
            uri=self.libvirt.uri,
            run_dir=self.libvirt.run_dir,
            options={
                "agent": {"audit_interval": 0.5, "retry_delay_min": 0.1},
                "http": {"port": port},
                # Counters that a test holds are files mounted over others: who has those open does not see them.
                "telemetry": {"keep_open": False},
            },
        )

    def start(self) -> None:
        """Start everything, and wait until each instance that runs is where it belongs."""
        self.simulator.start()
        self.libvirt.start()
        self.agent.start()
        vms.define(self.libvirt.connection(), STOPPED)
        for vm in RUNNING:
            vms.start(self.libvirt.connection(), vm)
        self.wait_until_placed()

    def wait_until_placed(self) -> None:
        """Wait until the agent has all that runs in place."""
        processes.wait_until(self._placed, "all instances being placed", 60.0)

    def promised_bytes(self, vm: Vm) -> int:
        """The size of the ways of an exclusive VM, all caches together, as resctrl says it."""
        text = (self.simulator.root / f"vmqos.{vm.uuid}" / "size").read_text()
        (l3,) = (line.split(":")[1] for line in text.splitlines() if line.strip().startswith("L3:"))
        return sum(int(size.split("=")[1]) for size in l3.split(";"))

    def stop(self) -> None:
        """End everything."""
        connection = self.libvirt.connection()
        # The end of a VM takes a second of waiting, mostly for its cgroups.
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda vm: vms.remove(connection, vm.uuid), (*RUNNING, STOPPED)))
        self.agent.end()
        self.libvirt.stop()
        self.simulator.stop()

    def _placed(self) -> bool:
        known = {vm["uuid"]: vm for vm in self.agent.get("/v1/vms")["vms"]}
        # Its monitoring group may be made, and filled, a pass or two after its tasks are in their class.
        return all(
            vm.uuid in known
            and 0 < known[vm.uuid]["tasks"] == known[vm.uuid]["tasks_in_place"]
            and not known[vm.uuid]["unmonitored_reason"]
            for vm in RUNNING
        )
