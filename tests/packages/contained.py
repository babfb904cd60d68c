# SPDX-License-Identifier: Apache-2.0
"""A ``podman run`` of the guide, carried out without podman: with the same mounts, namespaces, user and capabilities.

podman itself needs limits and control groups that a test machine, itself a container at times, may not give away.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.lab.program import Program
from tools.lab.workspace import CHECKOUT

PAGE = CHECKOUT / "doc/source/operator/container.rst"
DEVICES = ("full", "null", "random", "urandom", "zero")


@dataclass(frozen=True, slots=True)
class Run:
    """What a ``podman run`` asks for.

    :ivar name: of the container.
    :ivar user: in the image.
    :ivar capabilities: those that are left, without ``CAP_``.
    :ivar volumes: source, target, and whether it is only to be read.
    :ivar network: ``host`` or ``none``.
    :ivar command: the program; the image's if empty.
    """

    name: str
    user: str
    capabilities: tuple[str, ...]
    volumes: tuple[tuple[str, str, bool], ...]
    network: str
    command: tuple[str, ...]


def runs() -> dict[str, Run]:
    """The ``podman run`` commands of the page, by the container's name."""
    found = [_parse(text) for text in re.findall(r"^   podman run ((?:.*\\\n)*.*)$", PAGE.read_text(), re.MULTILINE)]
    return {one.name: one for one in found}


def _parse(text: str) -> Run:
    """Read a command; an option that is not known here ends the program, as argparse has it."""
    parser = argparse.ArgumentParser("podman run", exit_on_error=False)
    # This machine's processes and control groups are what the tests' VMs are among; all else is the container's own.
    parser.add_argument("--pid", choices=["host"], required=True)
    parser.add_argument("--cgroupns", choices=["host"])
    parser.add_argument("--network", choices=["host", "none"], required=True)
    parser.add_argument("--cap-drop", choices=["all"], required=True)
    parser.add_argument("--cap-add", action="append", default=[])
    parser.add_argument("--security-opt", choices=["no-new-privileges"], required=True)
    parser.add_argument("--read-only", action="store_true", required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--volume", action="append", default=[])
    parser.add_argument("--name", required=True)
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--restart")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(shlex.split(text.replace("\\\n", " ")))
    volumes = [volume.split(":") for volume in asked.volume]
    return Run(
        name=asked.name,
        user=asked.user,
        capabilities=tuple(asked.cap_add),
        volumes=tuple((one[0], one[1], one[2:] == ["ro"]) for one in volumes),
        network=asked.network,
        command=tuple(asked.command),
    )


def start(
    image: Path, run: Run, command: tuple[str, ...], *, host: Mapping[str, Path], cpus: Path, log: Path
) -> Program:
    """Start a container.

    :param image: the image's files, which stay as they are.
    :param command: of the image, for a run that names none.
    :param host: what the host has at the source of each volume.
    :param cpus: what the container sees as ``/sys/devices/system/cpu``: the simulated machine's.
    :param log: what the program says.
    """
    words = ["set -e", "mount --make-rprivate /"]

    def at(path: str) -> str:
        return shlex.quote(f"{image}{path}")

    def mount(source: Path | str, target: str, *, only_read: bool = False) -> None:
        words.append(f"mkdir -p {at(target)}; mount --rbind {shlex.quote(str(source))} {at(target)}")
        if only_read:
            words.append(f"mount -o remount,bind,ro {at(target)}")

    words.append(f"mount --bind {at('')} {at('')}")
    words.append(f"mount -t proc proc {at('/proc')}")
    # What a container can write to where --read-only leaves it memory, and the stem of what is mounted.
    for target in ("/sys", "/dev", "/run", "/tmp"):
        words.append(f"mount -t tmpfs -o mode=755 tmpfs {at(target)}")
    mount(cpus, "/sys/devices/system/cpu", only_read=True)
    words.append(f"mkdir -p {at('/etc/vmqos')}")
    for device in DEVICES:
        words.append(f": >{at(f'/dev/{device}')}; mount --bind /dev/{device} {at(f'/dev/{device}')}")
    for source, target, only_read in run.volumes:
        mount(host[source], target, only_read=only_read)
    words.append(f"for own in {at('')} {at('/sys')} {at('/dev')}; do mount -o remount,bind,ro $own; done")
    kept = "".join(f",+{name.lower()}" for name in run.capabilities)
    privileges = ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set=-all{kept}"]
    if run.user != "root":
        # setpriv changes the user first, and then needs a capability to give up all of them.
        privileges += ["--securebits=+no_setuid_fixup"]
        privileges += [f"--reuid={run.user}", f"--regid={run.user}", "--clear-groups"]
    environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]
    inside = [*environment, *privileges, *(run.command or command)]
    words.append(f"cd {at('')}; exec chroot . {shlex.join(inside)}")
    alone = ["unshare", "--mount", "--ipc", "--uts", *(["--net"] if run.network == "none" else [])]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*alone, "sh", "-c", "\n".join(words)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
