# SPDX-License-Identifier: Apache-2.0
"""What the administrator of a host with our units can see: the units, the VM's promise, who answers whom.

Runs in the guest.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from oslo_config import cfg

from tools.lab import vms
from vmqos.conf import loader
from vmqos.host import doctor
from vmqos.local_api.client import AgentClient
from vmqos.local_api.exceptions import LocalApiError

ROOT = Path("/sys/fs/resctrl")
AGENT, GATEWAY = "vmqos-agent.service", "vmqos-gateway.service"
CONFIGURATION = Path("/etc/vmqos/vmqos.conf")
PORT = 19177
PATIENCE = 400.0
"""Seconds. It ends what hangs, and judges nothing: on a busy machine, an agent in a guest takes minutes to start."""
WAYS = 4
ROM = Path("/var/lib/libvirt/halt.rom")
"""In place of the VM's firmware, which would keep a nested vCPU busy for many seconds: it stops at once, for good."""
VM = vms.Vm("instance-00000001", vms.Flavor("test", {"hw:cache_ways": str(WAYS)}), virt_type="kvm", rom=ROM)
GROUP = ROOT / f"vmqos.{VM.uuid}"


def shell(command: str, timeout: float = PATIENCE) -> str:
    """Run a line as root would: its exit status, and what it said."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=timeout, check=False)
    return f"{done.returncode} {done.stdout}{done.stderr}".strip()


def as_user(name: str, command: str) -> str:
    """Run a line as another user, with that user's groups."""
    return shell(f"setpriv --reuid={name} --regid={name} --init-groups {command}")


def in_child_of(name: str, action: Callable[[], str]) -> str:
    """Have a child process of this one become another user and act: a Python of its own would take seconds to start.

    :param name: the user.
    :returns: what the action returned, or the error that ended it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            user = pwd.getpwnam(name)
            os.initgroups(name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            said = action()
        except Exception:
            said = traceback.format_exc()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def wait_for(condition: Callable[[], object], what: str, pause: float = 0.2) -> None:
    """Wait until something is so.

    :param pause: seconds between two looks.
    :raises TimeoutError: after :data:`PATIENCE`.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen; {shell(f'systemctl status --no-pager {AGENT}')}")
        time.sleep(pause)


def state(unit: str) -> str:
    """The state of a unit, such as ``active``."""
    return shell(f"systemctl is-active {unit}").split()[-1]


def wait_until(unit: str, wanted: str, what: str) -> None:
    """Wait until a unit is in a state. Each look costs the guest a tenth of a second of its processor.

    :raises TimeoutError: after :data:`PATIENCE`.
    """
    wait_for(lambda: state(unit) == wanted, what, 1.0)


def prop(unit: str, name: str) -> str:
    """What systemd knows of a unit: it costs more than :func:`state`, for systemd is asked for everything."""
    return shell(f"systemctl show --property={name} --value {unit}").removeprefix("0 ")


def promise() -> str:
    """The state of the VM's promise, as the agent tells it."""
    try:
        return str(AgentClient("/run/vmqos/agent.sock").vm(VM.uuid)["state"])
    except LocalApiError:
        return ""


def tasks_outside() -> set[str]:
    """The threads of the VM's that are not in its group."""
    threads = Path("/proc", Path(f"/run/libvirt/qemu/{VM.name}.pid").read_text().strip(), "task")
    outside = set(os.listdir(threads)) - set((GROUP / "tasks").read_text().split())
    # One that ended between these two looks is not outside.
    return outside & set(os.listdir(threads))


def kept() -> dict[str, object]:
    """Wait for the promise, and look for oneself.

    After a mount, what is told is of the mount before until the agent's pass is over: its tasks come last.
    """

    def is_kept() -> bool:
        try:
            return promise() == "kept" and not tasks_outside()
        except FileNotFoundError:
            return False

    wait_for(is_kept, "the VM's promise being kept for all its tasks")
    outside = tasks_outside()
    (masks,) = re.findall(r"^\s*L3(?:CODE)?:(.*)", (GROUP / "schemata").read_text(), re.MULTILINE)
    return {
        "tasks outside": sorted(outside),
        "ways": [int(mask.split("=")[1], 16).bit_count() for mask in masks.split(";")],
        "root": access(),
        "options": shell(f"findmnt --noheadings --output OPTIONS {ROOT}"),
    }


def after(done: str, **told: object) -> dict[str, object]:
    """What a command did, and what came of it; if it failed, who has resctrl open or mounted."""
    if not done.startswith("0"):
        holders = shell(f"fuser -vm {ROOT}; grep -l resctrl /proc/[0-9]*/mountinfo")
        raise RuntimeError(f"{done}; {told}; {holders}")
    return {"done": done, **told, **kept()}


def access() -> str:
    """Who may enter resctrl."""
    return shell(f"stat --format='%a %U:%G' {ROOT}")


def over_tcp(path: str) -> str:
    """What the gateway answers on its port: the status, and the text."""
    try:
        with urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=60) as answer:
            return f"{answer.status} {answer.read().decode()}"
    except HTTPError as error:
        return f"{error.code} {error.read().decode()}"


def internet_sockets(pid: str) -> list[str]:
    """The sockets of a process that are neither Unix sockets nor of any other kind that stays on the host."""
    kinds = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
    lines = [line.split() for kind in kinds for line in Path("/proc/net", kind).read_text().splitlines()[1:]]
    inodes, found = {f"socket:[{words[9]}]" for words in lines}, set[str]()
    for link in Path("/proc", pid, "fd").iterdir():
        # It closes files all the time.
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return sorted(inodes & found)


def command_of(check: str) -> str:
    """What the doctor says that is to be done. It is asked without its command, which takes an emulated CPU ten seconds
    to start; the command itself is tried in ``tests/functional/cli``."""
    conf = cfg.ConfigOpts()
    loader.load(["--config-file", str(CONFIGURATION)], conf, "")
    agent, gateway = AgentClient("/run/vmqos/agent.sock"), AgentClient("/run/vmqos-gateway/gateway.sock")
    findings = doctor.examine(conf, agent.health, gateway.health, agent.hardware_events)
    (found,) = (finding.command for finding in findings if finding.title == check)
    return found


def ask(socket: str) -> str:
    """Whether an agent answers on a socket: its version, or the error."""
    try:
        return AgentClient(socket).health()["version"]
    except LocalApiError as error:
        return type(error).__name__
