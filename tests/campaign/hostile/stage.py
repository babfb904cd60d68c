# SPDX-License-Identifier: Apache-2.0
"""What the campaign is played on: a real agent, a private libvirtd with real QEMU processes, and the simulator."""

from __future__ import annotations

import contextlib
import grp
import http.client
import itertools
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.campaign.hostile import outsider, shipped
from tests.campaign.hostile.tenants import Tenants
from tests.functional.agent.tree import Tree
from tools.lab import vms
from tools.lab.agent import Agent, Options
from tools.lab.private_libvirt import PrivateLibvirt
from tools.lab.program import Program
from tools.lab.simulator import Simulator
from tools.lab.stalls import Stalls
from tools.lab.vms import RunningVm
from tools.lab.workspace import CHECKOUT, Workspace
from vmqos.cli.main import main

if TYPE_CHECKING:
    from tests.campaign.hostile.witness import Witness

AUDIT = 1.0
"""Seconds between two audits, as shipped."""
FULL_AUDIT = 1.0
"""Seconds between two full audits. As shipped it is a minute: here each input must be read while it is tried."""

LOCK_TIMEOUT = 2.0
"""Seconds that the agent waits for resctrl's lock. As shipped it is ten."""

MOST_MEMORY = 4 << 30
"""Bytes of address space: an agent that a tenant makes read gigabytes must not take the machine of the test down."""

DEV_FUSE = Path("/dev/fuse")


def launch(module: str, arguments: Sequence[str], log: Path) -> Program:
    """Start the agent or the gateway as the shipped unit does, as far as permissions go."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=shipped.umask(module),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY)),
        )


class Stage:
    """All that an input can act on.

    :ivar witness: who looks on, once there is one.
    :ivar tree: resctrl, read from outside.
    :ivar port: the gateway's TCP port on loopback.
    :ivar stalls: when the machine had no CPU for anybody.
    :ivar outside: a directory of the account :data:`outsider.READER`.
    """

    def __init__(self, workspace: Workspace, host: PrivateLibvirt) -> None:
        self.workspace = workspace
        self.host = host
        self.witness: Witness
        self.stalls = Stalls()
        self.stalls.__enter__()
        self._numbers = itertools.count(1)
        self._cloud_vms: dict[str, RunningVm] = {}
        # As /run and /sys/fs on a host: every account may pass.
        workspace.path.chmod(0o711)
        self.outside = workspace.path / "outside"
        self.outside.mkdir()
        os.chown(self.outside, outsider.READER, outsider.READER)
        _let_accounts_use_fuse(workspace)
        self.simulator = Simulator(workspace, "broadwell", name="resctrl-campaign")
        self.simulator.start()
        for command in shipped.resctrl_commands(self.simulator.root):
            subprocess.run(command, check=True)
        self.tree = Tree(self.simulator.root)
        self.tenants = Tenants(workspace, host)
        # Who asks for this port, and reuses addresses as servers do, gets it; who asks for any port gets another one.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = int(self._held.getsockname()[1])
        options: Options = {
            "agent": {"audit_interval": AUDIT, "full_audit_interval": FULL_AUDIT},
            "resctrl": {"lock_timeout": LOCK_TIMEOUT},
            "telemetry": {"interval": 1.0},
            "http": {"port": self.port},
            # The attackers may ask what an ordinary reader may: that one may not ask at all is an input of its own.
            "api": {"socket_group": grp.getgrgid(outsider.READER).gr_name},
        }
        self.agent = Agent(
            workspace,
            resctrl=self.simulator.root,
            sysfs=self.simulator.sysfs,
            uri=host.uri,
            run_dir=host.run_dir,
            options=options,
            name="agent-campaign",
            launch=launch,
        )
        self.agent.start()

    def close(self) -> None:
        """End the agent, its gateway and the simulator."""
        self.agent.end()
        self.simulator.stop()
        self._held.close()
        self.stalls.__exit__()

    @property
    def pid(self) -> int:
        """PID of the agent.

        :raises RuntimeError: if it has ended.
        """
        if self.agent.pid is None:
            raise RuntimeError("the agent has ended")
        return self.agent.pid

    @property
    def pids(self) -> dict[str, int]:
        """PIDs of the agent and of its gateway.

        :raises RuntimeError: if one of them has ended.
        """
        if self.agent.gateway.pid is None:
            raise RuntimeError("the gateway has ended")
        return {"the agent": self.pid, "the gateway": self.agent.gateway.pid}

    @property
    def logs(self) -> tuple[Path, Path]:
        """What the agent and its gateway say."""
        return self.agent.log, self.agent.gateway.log

    @property
    def lock_file(self) -> Path:
        """The file by which a second agent is kept out."""
        name = str(self.simulator.root.resolve()).strip("/").replace("/", "-")
        return Path(f"/run/vmqos/agent-{name}.lock")

    def cloud_vm(self, role: str) -> RunningVm:
        """An ordinary VM of a user of the cloud, started when it is first asked for."""
        if role not in self._cloud_vms:
            self._cloud_vms[role] = vms.run(self.host, vms.Vm(self.new_name(), vms.Flavor("plain")))
        return self._cloud_vms[role]

    def new_name(self) -> str:
        """A name that no VM has."""
        return f"cloud-{next(self._numbers)}"

    def clear(self) -> None:
        """End the VMs of attackers, which the next family's inputs do not need."""
        uuids = [*self.tenants.forget(), *(vm.uuid for vm in self._cloud_vms.values())]
        self._cloud_vms = {}
        connection = self.host.connection()
        # The end of a VM takes a second of waiting, mostly for its cgroups.
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda uuid: vms.remove(connection, uuid), uuids))

    def ask(self, path: str, timeout: float = 10.0) -> Any:
        """``GET`` a path over TCP; the decoded JSON."""
        return json.loads(self.fetch(path, timeout))

    def fetch(self, path: str, timeout: float = 10.0) -> str:
        """``GET`` a path over TCP; the text.

        :raises OSError: if the answer is not 200, or there is none.
        """
        # From another address than the attackers': the gateway bounds what one client can take from the others.
        source = ("127.0.0.2", 0)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout, source_address=source)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status != 200:
            raise OSError(f"{path}: {answer.status} {text[:200]}")
        return text

    def commands(self, *commands: Sequence[str]) -> list[bytes]:
        """What ``vmqos`` prints for the operator, for each of these lists of arguments."""
        config = ["--config-file", str(self.agent.config_file)]
        outputs: list[bytes] = outsider.attack(_run_commands, [[*config, *command] for command in commands], uid=0)
        return outputs


def _run_commands(line: outsider.Line, commands: list[list[str]]) -> None:
    """Run ``vmqos`` in this process, which has its imports, and say what it printed each time."""
    outputs = []
    for arguments in commands:
        with tempfile.TemporaryFile() as output:
            os.dup2(output.fileno(), 1)
            with contextlib.suppress(SystemExit):
                main(arguments)
            sys.stdout.flush()
            output.seek(0)
            outputs.append(output.read())
    line.say(outputs)


def _let_accounts_use_fuse(workspace: Workspace) -> None:
    """Distributions let every account open /dev/fuse; some containers do not. Put it back at the workspace's end."""
    mode = DEV_FUSE.stat().st_mode & 0o777
    if mode & 0o006 != 0o006:
        workspace.record_command(["chmod", f"{mode:o}", str(DEV_FUSE)])
        DEV_FUSE.chmod(0o666)
