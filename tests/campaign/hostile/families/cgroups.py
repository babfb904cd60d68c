# SPDX-License-Identifier: Apache-2.0
"""Cgroups that a local account makes in a place of its own, so that its processes look like a VM's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.campaign.hostile import outsider
from tests.campaign.hostile.inputs import Attacker, Family, Harm, Hold, Input
from tests.campaign.hostile.outsider import Line
from tests.campaign.hostile.stage import FULL_AUDIT, Stage
from tests.campaign.hostile.tenant_program import Arguments
from tests.campaign.hostile.witness import group_may_go

NAMES: dict[str, str] = {
    "a VM's scope of systemd": "machine-qemu\\x2d1\\x2dinnocent.scope",
    "a VM's scope of systemd below others": "a/machine.slice/machine-qemu\\x2d1\\x2dinnocent.scope/libvirt/emulator",
    "a VM's folder without systemd": "machine/qemu-1-innocent.libvirt-qemu/emulator",
    "a VM's folder within a VM's folder": "qemu-1-a.libvirt-qemu/qemu-2-b.libvirt-qemu",
    "escape sequences": "\x1b[2J",
    "a carriage return": "a\rb",
    "colons": "0::/machine.slice",
    "bytes that are no UTF-8": "\udcff\udcfe",
    "a next-line character": "a\x85qemu-1-x.libvirt-qemu",
    "255 bytes": "qemu-" + "x" * 237 + ".libvirt-qemu",
    "100 levels": "/".join(["deep"] * 100),
    "100 levels below a VM's folder": "qemu-1-x.libvirt-qemu/" + "/".join(["deep"] * 100),
}

WIDE = 2000


def live(line: Line, folder: str, name: str, uuid: str, wide: int) -> None:
    """Make a cgroup in a place of one's own, enter it, and say that one is QEMU."""
    # What systemd does for a user's session: the account's first process is put into the account's folder.
    Path(folder, "cgroup.procs").write_text(f"{os.getpid()}\n")
    outsider.become(outsider.READER)
    path = f"{folder}/{name}"
    os.makedirs(path)
    for number in range(wide):
        os.mkdir(f"{path}/{number}")
    with open(f"{path}/cgroup.procs", "w") as file:
        file.write(f"{os.getpid()}\n")
    # Readable for others, as it is after an execve of an ordinary program.
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    arguments = Arguments()
    begin = f"qemu-system-x86_64\0-name\0guest=x\0-uuid\0{uuid}\0".encode()
    arguments.point_at(begin, len(begin))
    if uuid not in Path("/proc/self/cmdline").read_text():
        raise RuntimeError("the impostor's command line does not say what it should")
    # A process that is born there has never been anywhere else.
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    try:
        line.in_force([os.getpid(), child])
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def hierarchy() -> Path:
    """Where a mounted hierarchy of cgroups is: version 2 if there is one."""
    mounts = [line.split(b" ") for line in Path("/proc/self/mounts").read_bytes().split(b"\n") if line]
    found = sorted((fields[2] != b"cgroup2", os.fsdecode(fields[1])) for fields in mounts if fields[2][:6] == b"cgroup")
    return Path(found[0][1])


def _living(stage: Stage, name: str, of: str, wide: int = 0) -> Hold:
    """An impostor of a VM: it must not get into any group of the agent's.

    :param of: whose process it says it is: ``steady``, an innocent VM's, or ``tenant``, one's whose own process says on
        its command line that it is not it, so that the agent looks for another one.
    """
    delegated = hierarchy() / f"vmqos-campaign-{os.getpid()}-{time.monotonic_ns()}"
    delegated.mkdir()
    tenant = stage.tenants.get("first") if of == "tenant" else None
    uuid = tenant.vm.uuid if tenant else stage.witness.steady.uuid
    try:
        for path in (delegated, *delegated.glob("cgroup.*"), delegated / "tasks"):
            if path.exists():
                os.chown(path, outsider.READER, outsider.READER)
        with contextlib.ExitStack() as stack:
            if tenant:
                stack.enter_context(tenant.doing("argv", begin="no qemu\0", size=8))
            impostors = stack.enter_context(outsider.attacking(live, str(delegated), name, uuid, wide, uid=0))
            yield
            if tenant:
                # The agent may take it for the VM's process at the next audit only.
                time.sleep(FULL_AUDIT)
            for group in stage.tree.groups():
                # The witness's VMs come and go, and their groups with them.
                with group_may_go():
                    if stage.tree.tasks(group) & set(impostors):
                        raise Harm(f"an impostor's process is in {group}")
    finally:
        for folder, _, _ in os.walk(delegated, topdown=False):
            for _ in range(50):
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    # The kernel refuses it for a moment after the last process.
                    time.sleep(0.02)


def _inputs() -> Iterator[Input]:
    for number, (what, name) in enumerate(NAMES.items()):
        act = partial(_living, name=name, of="steady")
        yield Input(f"an impostor in {what}", Attacker.ACCOUNT, act, f"impostors {number // 6 + 1}")
    for what in ("a VM's scope of systemd", "a VM's folder without systemd"):
        act = partial(_living, name=NAMES[what], of="tenant")
        yield Input(f"an impostor in {what}, for a tenant who hides", Attacker.ACCOUNT, act)
    act = partial(_living, name="qemu-1-x.libvirt-qemu", of="tenant", wide=WIDE)
    yield Input(f"an impostor with {WIDE} cgroups", Attacker.ACCOUNT, act)


FAMILY = Family("cgroups", "cgroups that a local account makes", tuple(_inputs()))
