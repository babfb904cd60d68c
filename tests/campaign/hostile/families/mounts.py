# SPDX-License-Identifier: Apache-2.0
"""Mount points of FUSE filesystems that a local account makes: the kernel writes their names into mountinfo."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.campaign.hostile import outsider
from tests.campaign.hostile.inputs import Attacker, Family, Hold, Input, Refused
from tests.campaign.hostile.outsider import Line
from tests.campaign.hostile.stage import Stage

MNT_DETACH = 2
LIBC = ctypes.CDLL(None, use_errno=True)

POINTS: dict[str, bytes] = {
    "a carriage return": b"a\rb",
    "a line feed": b"a\nb",
    "both": b"a\r\nb",
    "a vertical tab": b"a\x0bb",
    "a form feed": b"a\x0cb",
    "a file separator": b"a\x1cb",
    "a group separator": b"a\x1db",
    "a record separator": b"a\x1eb",
    "a unit separator": b"a\x1fb",
    "a next-line character": "a\x85b".encode(),
    "a line separator": "a\u2028b".encode(),
    "a paragraph separator": "a\u2029b".encode(),
    "a tab": b"a\tb",
    "blanks": b" a  b ",
    "a no-break space": "a\xa0b".encode(),
    "backslashes": rb"a\\b\134\040",
    "an octal escape": rb"\012\015",
    "bytes that are no UTF-8": b"\xff\xfe\xc0\x80",
    "an escape sequence": b"\x1b[2J\x1b]0;x\x07",
    "a right-to-left mark": "\u202egpj".encode(),
    "a hash sign": b"# a comment",
    "a mount of resctrl in its name": b" - resctrl resctrl rw",
    "a line of resctrl in its name": b"x\r36 35 0:99 / ROOT rw - resctrl resctrl rw",
    "a line of cgroups in its name": b"x\r36 35 0:99 / CGROUP rw - cgroup2 cgroup2 rw",
    "a line without fields": b"x\r\r\rx",
    "a line of the agent's own resctrl": b"x\r36 35 0:99 / RESCTRL ro - tmpfs tmpfs ro",
    "255 bytes": b"a" * 255,
    "3 000 bytes": b"/".join([b"b" * 250] * 12),
    "3 000 bytes of carriage returns": b"/".join([b"\r" * 250] * 12),
}
"""What is in the mount point's name. ROOT, CGROUP and RESCTRL are put in: paths that the agent looks for."""

SOURCES: dict[str, str] = {
    "a source of resctrl": "fsname=resctrl,subtype=resctrl",
    "a source with a carriage return": "fsname=x\r36 35 0:99 / /sys/fs/resctrl rw - resctrl resctrl rw",
    "a type with a carriage return": "subtype=x\ry",
    "a type that looks like resctrl": "subtype=resctrl resctrl rw",
    "a source that is no UTF-8": "fsname=\udcff\udcfe",
}
"""Options of fusermount3 that end up in the same line."""

MANY = 300


def mount(line: Line, points: list[bytes], options: str) -> None:
    """Mount FUSE filesystems that nobody serves, as any account may.

    :raises Refused: if fusermount3 refuses the first one.
    """
    held = []
    for point in points:
        os.makedirs(point, exist_ok=True)
        ours, theirs = socket.socketpair()
        command = ["fusermount3", *(["-o", options] if options else []), "--", os.fsdecode(point)]
        environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
        done = subprocess.run(command, env=environment, pass_fds=[theirs.fileno()], capture_output=True, check=False)
        theirs.close()
        if done.returncode:
            raise Refused(done.stderr.decode(errors="replace").strip() or f"fusermount3: {done.returncode}")
        held.append(socket.recv_fds(ours, 16, 1)[1][0])
        ours.close()
    line.in_force(len(held))


def _mounted(stage: Stage, points: list[bytes], options: str) -> Hold:
    folder = os.fsencode(stage.outside)
    known = {b"ROOT": b"/sys/fs/resctrl", b"CGROUP": b"/sys/fs/cgroup", b"RESCTRL": bytes(stage.simulator.root)}
    named = []
    for point in points:
        for word, path in known.items():
            point = point.replace(word, path)
        named.append(folder + b"/" + point)
    try:
        with outsider.attacking(mount, named, options):
            yield
    finally:
        unmount_all(folder)


def unmount_all(folder: bytes) -> None:
    """Unmount whatever is mounted below a folder."""
    mounts = Path("/proc/self/mountinfo").read_bytes().split(b"\n")
    for fields in (line.split(b" ") for line in mounts):
        if len(fields) > 4 and fields[4].startswith(folder + b"/"):
            point = fields[4]
            for octal, byte in ((rb"\040", b" "), (rb"\011", b"\t"), (rb"\012", b"\n"), (rb"\043", b"#")):
                point = point.replace(octal, byte)
            LIBC.umount2(ctypes.c_char_p(point.replace(rb"\134", b"\\")), MNT_DETACH)


def _inputs() -> Iterator[Input]:
    for number, (name, point) in enumerate(POINTS.items()):
        act = partial(_mounted, points=[point], options="")
        yield Input(f"a mount point with {name}", Attacker.ACCOUNT, act, f"mount points {number // 10 + 1}")
    for number, (name, options) in enumerate(SOURCES.items()):
        act = partial(_mounted, points=[b"source-%d" % number], options=options)
        yield Input(name, Attacker.ACCOUNT, act, "sources")
    plain = [b"many/%d" % number for number in range(MANY)]
    odd = [b"odd/%d\r\x1b" % number + b"c" * 200 for number in range(MANY)]
    yield Input(f"{MANY} mounts", Attacker.ACCOUNT, partial(_mounted, points=plain, options=""))
    yield Input(f"{MANY} mounts with carriage returns", Attacker.ACCOUNT, partial(_mounted, points=odd, options=""))


FAMILY = Family("mounts", "mountinfo: FUSE mounts of a local account", tuple(_inputs()))
