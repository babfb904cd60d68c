# SPDX-License-Identifier: Apache-2.0
"""A Linux for a VM in the guest: the guest's own kernel, and of its Debian what the programs need, in a RAM disk.

The VM has no disk. Its first serial port says what the ROM of the other experiments says (``payload/load.c``), and in
place of that what went wrong; the kernel says nothing there unless it panics.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.kernel.lab import initrd
from tests.kernel.lab.job import CHECKOUT
from tests.worth.size.programs.loads import PYTHON, TEXT, TEXT_BYTES, Program
from tools.lab.vms import Linux

KERNEL = CHECKOUT / "build/worth-vmlinuz"
"""The guest's kernel, which its disk lacks: it is booted from outside. Whoever boots the guest puts it here."""
MEMORY = 256 << 20
COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off no_timer_check nmi_watchdog=0 nokaslr rdinit=/init"
)
"""``nokaslr``: the VM's kernel fills the same sets of the caches in each run."""

LIBRARY = "/usr/lib/python3.13"
"""Python's, whose source is the text that programs work on."""
BUSYBOX = "/usr/bin/busybox"
MODULES = """\
import ctypes, encodings.ascii, encodings.utf_8, sys, {modules}
print(*sorted(dict.fromkeys(one.__file__ for one in sys.modules.values() if getattr(one, "__file__", None))))
"""
"""Lists the files of all modules that a program imports. One of them is an object, for without any Python complains."""

INIT = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /dev /proc /tmp
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox stty -F /dev/ttyS0 raw
exec </dev/null >/dev/ttyS0 2>&1
{script}
while :; do /bin/busybox sleep 3600; done
"""


def build(path: Path, program: Program) -> Linux:
    """Make the RAM disk of a program.

    :param path: of the RAM disk.
    :raises FileNotFoundError: if this guest lacks the kernel's file, or a program.
    """
    files = {"bin/busybox": Path(BUSYBOX).read_bytes(), TEXT.lstrip("/"): _text()}
    files |= {name.lstrip("/"): Path(name).read_bytes() for name in _files(program)}
    files["init"] = INIT.format(script=program.script).encode()
    files["program.py"] = program.python.encode()
    initrd.write(path, files)
    return Linux(KERNEL.resolve(strict=True), path, COMMAND_LINE)


def versions() -> Mapping[str, str]:
    """Which Debian packages the programs are of, with their versions."""
    names = ("liblz4-1", "libzstd1", "gzip", "coreutils", "openssl", "python3.13", "libsqlite3-0")
    shown = _run("dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", *names)
    return dict(line.split(" ") for line in shown.splitlines())


@functools.cache
def _text() -> bytes:
    """The first of the source of Python's library, by name."""
    text = b"".join(path.read_bytes() for path in sorted(Path(LIBRARY).glob("*.py")))
    return text[:TEXT_BYTES]


def _files(program: Program) -> Iterable[str]:
    """All that a program needs, by the names under which it looks for it."""
    modules = _run(PYTHON, "-I", "-S", "-c", MODULES.format(modules=program.modules)).split() if program.modules else []
    objects = [*program.files, *(name for name in modules if name.endswith(".so"))]
    needed = re.findall(r"(/\S+) \(0x", _run("ldd", *objects))
    return dict.fromkeys([*objects, *needed, *modules])


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
