# SPDX-License-Identifier: Apache-2.0
"""Record the outputs and the picture that the documentation shows, by running the commands for real.

As root, from the top of the source tree, with ``vmqos[agent,simulator]`` installed::

    python doc/record_examples.py

A private libvirtd, small VMs, the simulator, the agent and the gateway play one host; each example is what a command
printed there. Only the workspace's path and the host's name are replaced, by some that fit a reader's host.
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import uuid
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from tools.lab import kvm, processes, program, vms  # noqa: E402
from tools.lab.agent import Agent  # noqa: E402
from tools.lab.private_libvirt import PrivateLibvirt  # noqa: E402
from tools.lab.simulator import Simulator  # noqa: E402
from tools.lab.workspace import Workspace  # noqa: E402

EXAMPLES = CHECKOUT / "doc" / "source" / "examples"
PICTURE = CHECKOUT / "doc" / "source" / "_static" / "way-map.svg"
WIDTH = 96
PICTURE_WIDTH = 88
SHOWN_HOST = "compute-7"
SHOWN_PATH = "/run/vmqos-simulator-01"
"""What stands for the workspace's path: as long as that, or the tables would be askew."""

ASKS = b"[y/N] "
"""What a question ends with."""

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_TAKEN_AWAY = re.compile(r"[^\n]*\n\x1b\[1A\x1b\[2K")
"""The line of a bar that is over."""
_PAIR = re.compile(r"\[\s+([\d.]+),\s+([\d.]+)\s+\]")

WAYS_2 = vms.Flavor("c2.cache2", {"hw:cache_ways": "2"})
WAYS_3 = vms.Flavor("c2.cache3", {"hw:cache_ways": "3"})
WAYS_4 = vms.Flavor("c2.cache4", {"hw:cache_ways": "4"})
WAYS_6 = vms.Flavor("c2.cache6", {"hw:cache_ways": "6"})
CAP_2 = vms.Flavor("c2.cap2", {"hw:cache_ways": "2", "hw:cache_policy": "shared"})
PLAIN = vms.Flavor("m1.small", {})
WRONG = vms.Flavor("c2.wrong", {"hw:cache_ways": "two"})
ALL_OF_IT = {
    "hw:cache_code_ways": "2",
    "hw:cache_data_ways": "4",
    "hw:l2_cache_ways": "6",
    "hw:mem_bandwidth_percent": "65",
}
PART = vms.Flavor("c2.radio", {"hw:cache_ways": "1", "hw:cache_vcpus": "1,2"})

HAPPY = (
    ("db-1", WAYS_3, "0"),
    ("web-1", WAYS_2, ""),
    ("search-1", WAYS_4, "1"),
    ("batch-1", CAP_2, ""),
    ("batch-2", CAP_2, ""),
    ("mail-1", PLAIN, ""),
)
"""Names, flavors and the CPUs they are pinned to."""
EVERYTHING = (
    ("db-1", vms.Flavor("c2.all", ALL_OF_IT), "0"),
    ("web-1", WAYS_2, ""),
    ("batch-1", vms.Flavor("c2.half", {"hw:mem_bandwidth_percent": "50"}), ""),
)
"""On a machine that has more."""
UNHAPPY = (("big-1", WAYS_6, ""), ("typo-1", WRONG, ""), ("radio-1", PART, ""))


class Host:
    """The host that everything is recorded on."""

    def __init__(
        self,
        workspace: Workspace,
        profile: str = "cascade-lake",
        mount_options: str = "",
        *,
        simulator: str = "vmqos.simulator",
        agent: str = "vmqos.agent.main",
    ) -> None:
        """Start libvirtd and the simulator.

        :param simulator: the module that is run in its place, and ``agent`` the one that is run in the agent's.
        """

        def launch(module: str, arguments: Sequence[str], log: Path) -> program.Program:
            return program.launch(agent if module == "vmqos.agent.main" else module, arguments, log)

        self.path = workspace.path
        self.libvirt = PrivateLibvirt(workspace)
        self.simulator = Simulator(workspace, profile, mount_options, module=simulator)
        self.libvirt.start()
        self.simulator.start()
        self.agent = Agent(
            workspace,
            resctrl=self.simulator.root,
            sysfs=self.simulator.sysfs,
            uri=self.libvirt.uri,
            run_dir=self.libvirt.run_dir,
            options={"gateway": {}, "http": {"port": 0}},
            launch=launch,
        )
        self._virt_type = kvm.virt_type()

    def start(self, wanted: Sequence[tuple[str, vms.Flavor, str]]) -> None:
        """Start VMs, and wait until the agent has judged each and placed its tasks."""
        connection = self.libvirt.connect()
        for name, flavor, cpus in wanted:
            identity = uuid_of(name)
            vm = vms.Vm(f"instance-0000{identity[:4]}", flavor, name, vcpus=2, cpuset=cpus, uuid=identity)
            vm = dataclasses.replace(vm, virt_type=self._virt_type)
            vms.start(connection, vm)
            processes.wait_until(lambda uuid=identity: self._settled(uuid), f"{name} being settled", 30.0)  # type: ignore[misc]
        connection.close()

    def _settled(self, identity: str) -> bool:
        found = [vm for vm in self.agent.get("/v1/vms")["vms"] if vm["uuid"] == identity]
        return bool(found) and 0 < found[0]["tasks"] == found[0]["tasks_in_place"]

    def vmqos(self, *arguments: str, colours: bool = False, width: int = WIDTH, answer: str = "") -> str:
        """What ``vmqos`` prints on a terminal of that width.

        :param answer: what is typed where it asks.
        """
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "VMQOS_SOCKET")}
        environment |= {"COLUMNS": str(width), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        command = [sys.executable, "-m", "vmqos.cli.main", "--config-file", str(self.agent.config_file), *arguments]
        reader, writer = pty.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        with subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdin=writer, stdout=writer, stderr=writer):
            os.close(writer)
            printed = _read_all(reader, answer)
        os.close(reader)
        # A line that changes is there in each of its states.
        printed = re.sub(r"[^\n]*\r(?!\n)|\x1b\[K", "", printed)
        printed = _TAKEN_AWAY.sub("", printed)
        return self._presentable(printed if colours else _ESCAPE.sub("", printed))

    def json(self, path: str) -> str:
        """What the gateway answers for the agent, laid out for people."""
        answer = self.agent.gateway.get(path)
        if "hostname" in answer:
            answer["hostname"] = SHOWN_HOST
        # A pair of numbers, such as a bucket of a histogram, is one line.
        return self._presentable(_PAIR.sub(r"[\1, \2]", json.dumps(answer, indent=2)))

    def _presentable(self, text: str) -> str:
        assert len(SHOWN_PATH) == len(str(self.path))
        text = text.replace(str(self.path), SHOWN_PATH)
        text = text.replace(f" · {socket.gethostname()} · ", f" · {SHOWN_HOST} · ")
        return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _read_all(terminal: int, answer: str) -> str:
    read = b""
    while True:
        if answer and read.endswith(ASKS):
            os.write(terminal, f"{answer}\n".encode())
            answer = ""
        try:
            part = os.read(terminal, 65536)
        except OSError:
            # EIO: the last process on the other side has ended.
            return read.decode()
        if not part:
            return read.decode()
        read += part


def uuid_of(name: str) -> str:
    """A VM's UUID, the same in each recording."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.example.com"))


def record(name: str, text: str) -> None:
    """Keep one example."""
    (EXAMPLES / name).write_text(text, encoding="utf-8")
    print(f"--- {name}\n{text}", flush=True)


def draw(coloured: str) -> None:
    """Keep the way map as a picture that needs nothing from elsewhere: rich's own loads its font over the network."""
    console = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(coloured.rstrip("\n")))
    svg = console.export_svg(title="vmqos cache show", theme=SVG_EXPORT_THEME, unique_id="way-map")
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "Fira Code, DejaVu Sans Mono, Consolas, Menlo, monospace")
    # Some viewers drop a text's leading blanks otherwise.
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


def main() -> None:
    """Play the host, and record."""
    EXAMPLES.mkdir(exist_ok=True)
    PICTURE.parent.mkdir(exist_ok=True)
    with Workspace() as workspace:
        host = Host(workspace)
        record("simulate-list-profiles.txt", host.vmqos("simulate", "--list-profiles", width=110))
        record("noisy-neighbor.txt", host.vmqos("bench", "noisy-neighbor", "--noise", "builtin"))
        # Made by hand: a simulated host has nobody who suffers.
        record("replay.txt", host.vmqos("replay", "tests/fuzz/corpus/neighbours/counted"))
        host.agent.start()
        host.start(HAPPY)
        draw(host.vmqos("cache", "show", colours=True, width=PICTURE_WIDTH))
        record("cache-show.txt", host.vmqos("cache", "show"))
        record("capabilities.txt", host.vmqos("capabilities"))
        record("plan-kept.txt", host.vmqos("plan", "--flavor-spec", "hw:cache_ways=2"))
        record("plan-pending.txt", host.vmqos("plan", "--flavor-spec", "hw:cache_ways=6"))
        host.start(UNHAPPY)
        record("vm-list.txt", host.vmqos("vm", "list"))
        record("vm-list-value.txt", host.vmqos("vm", "list", "-f", "value", "-c", "VM", "-c", "State"))
        record("top.txt", host.vmqos("top", "--once"))
        record("vm-show.txt", host.vmqos("vm", "show", "web-1", width=110))
        record("api-vm.json", host.json(f"/v1/vms/{uuid_of('web-1')}"))
        record("api-caches.json", host.json("/v1/caches"))
        record("api-capabilities.json", host.json("/v1/capabilities"))
        groups = json.loads(host.json("/v1/groups"))["groups"]
        (shared,) = (group for group in groups if group["owner"] == "class")
        record("api-group.json", json.dumps(shared, indent=2) + "\n")
        record("api-plan.json", host.json("/v1/plan?spec=hw:cache_ways%3D2"))
        record("api-health.json", host.json("/v1/health"))
        host.agent.stop()
        foreign = host.simulator.root / "COS7"
        foreign.mkdir()
        (foreign / "schemata").write_text("L3:0=400;1=400\n")
        record("doctor-problems.txt", host.vmqos("doctor", "--problems"))
        foreign.rmdir()
        record("reset.txt", host.vmqos("reset", "--yes", width=120))
    with Workspace() as workspace:
        record_everything(Host(workspace, "sapphire-rapids", "cdp"))


def record_everything(host: Host) -> None:
    """What a machine shows that has more than L3 ways."""
    host.agent.start()
    host.start(EVERYTHING)
    record("cache-show-everything.txt", host.vmqos("cache", "show"))


if __name__ == "__main__":
    main()
